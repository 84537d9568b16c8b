"""Checkpoints of Hugging Face transformers: one dialect for each class or `model_type`.

The dialects contain the names in files, which differ from the names of modules in memory:
transformers 5 renames on loading and back on saving (`conversion_mapping.py`).
"""

from keras_vit.checkpoints.dialects.transformers import relatives, towers, vit
from keras_vit.checkpoints.dialects.transformers.dinov2 import dinov2, dinov2_with_registers
from keras_vit.checkpoints.dialects.transformers.dinov3 import dinov3

FAMILIES = (
    *vit.FAMILIES,
    dinov2,
    dinov2_with_registers,
    dinov3,
    *towers.FAMILIES,
    *relatives.RELATIVES,
)
"""If several families can hold a model, the first is written."""
