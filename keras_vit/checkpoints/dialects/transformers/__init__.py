"""Checkpoints of Hugging Face transformers: a module for each family, or for relatives.

The dialects contain the names in files, which differ from the names of modules in memory:
transformers 5 renames on loading and back on saving (`conversion_mapping.py`).
"""

from keras_vit.checkpoints.dialects.base import collect

_FIRST = ("vit", "vit_relatives", "beit", "dinov2", "dinov3", "clip", "siglip")
FAMILIES = collect(__name__, __path__, _FIRST)
"""If several families can hold a model, the first is written: modules of `_FIRST`, then others."""
