"""Checkpoints of Hugging Face transformers: a module for each network.

The names are those in files, which differ from the names of modules in memory: transformers 5
renames on loading and back on saving (`conversion_mapping.py`).
"""

from keras_vit.checkpoints.families.transformers import (
    aimv2,
    beit,
    blip,
    clip,
    dinov2,
    dinov3,
    internvl,
    radio,
    siglip,
    vit,
)

FAMILIES = (
    *vit.FAMILIES,
    *beit.FAMILIES,
    *dinov2.FAMILIES,
    *dinov3.FAMILIES,
    *clip.FAMILIES,
    *siglip.FAMILIES,
    *aimv2.FAMILIES,
    *blip.FAMILIES,
    *internvl.FAMILIES,
    *radio.FAMILIES,
)
"""If several families can hold a model, the first is written."""
