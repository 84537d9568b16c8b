"""Presets of keras-hub, such as `vit_base_patch16_224_imagenet`: one file for each backbone.

A preset is a folder with `config.json`, `model.weights.h5` and, for a classifier, `task.json` and
`task.weights.h5`. Layers are named by class and order of creation.
"""

from keras_vit.checkpoints.dialects.keras_hub.deit import deit
from keras_vit.checkpoints.dialects.keras_hub.dino import dinov2, dinov3
from keras_vit.checkpoints.dialects.keras_hub.towers import (
    clip,
    clip_backbone,
    siglip,
    siglip_backbone,
)
from keras_vit.checkpoints.dialects.keras_hub.vit import vit

FAMILIES = (vit, deit, dinov2, dinov3, clip, siglip, clip_backbone, siglip_backbone)
"""If several families can hold a model, the first is written."""
