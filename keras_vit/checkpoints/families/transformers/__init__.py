"""Checkpoints of Hugging Face transformers, with one module per network.

The names are those in files, which differ from the names of modules in memory: transformers 5
renames arrays on loading, and back on saving (`conversion_mapping.py`).
"""

from keras_vit.checkpoints.families.transformers import (
    aimv2,
    beit,
    blip,
    clip,
    dinov2,
    dinov3,
    dpt,
    internvl,
    radio,
    siglip,
    vit,
)

FAMILIES = (
    *(vit.VIT, beit.BEIT, dinov2.DINOV2, dinov2.TIPSV2, dinov2.PIXIO, dinov3.DINOV3),
    *(clip.CLIP, siglip.SIGLIP, siglip.SIGLIP2, aimv2.AIMV2, blip.BLIP, internvl.INTERNVL),
    *(radio.RADIO, dpt.DPT, dpt.DEPTH_ANYTHING),
)
"""If several families can store a model, the first is written."""
