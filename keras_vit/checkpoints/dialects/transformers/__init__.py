"""Checkpoints of Hugging Face transformers: one dialect for each class or `model_type`.

The dialects contain the names in files, which differ from the names of modules in memory:
transformers 5 renames on loading and back on saving (`conversion_mapping.py`).
"""

from keras_vit.checkpoints.dialects.transformers.dinov2 import dinov2, dinov2_with_registers
from keras_vit.checkpoints.dialects.transformers.dinov3 import dinov3
from keras_vit.checkpoints.dialects.transformers.relatives import RELATIVES
from keras_vit.checkpoints.dialects.transformers.towers import (
    clip,
    clip_classifier,
    clip_projection,
    clip_vision,
    siglip,
    siglip2,
    siglip_classifier,
    siglip_vision,
)
from keras_vit.checkpoints.dialects.transformers.vit import vit
from keras_vit.checkpoints.dialects.transformers.vit_kin import (
    deit,
    dpt,
    flava_image,
    ijepa,
    vit_mae,
    vit_msn,
)

FAMILIES = (
    vit,
    dinov2,
    dinov2_with_registers,
    dinov3,
    deit,
    vit_mae,
    vit_msn,
    ijepa,
    clip_vision,
    clip_projection,
    clip_classifier,
    clip,
    siglip_vision,
    siglip_classifier,
    siglip,
    *siglip2,
    flava_image,
    dpt,
    *RELATIVES,
)
"""If several families can hold a model, the first is written."""
