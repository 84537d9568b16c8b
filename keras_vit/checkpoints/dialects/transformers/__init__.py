"""Checkpoints of Hugging Face transformers: one file for each `model_type`.

The names are those of the files, which are not those of the modules in memory
(transformers 5 renames on loading and back on saving, `conversion_mapping.py`).
"""

from keras_vit.checkpoints.dialects.transformers.vit import vit

FAMILIES = (vit,)
"""Of several families that can hold a model, the first is written."""
