"""Presets of keras-hub, such as `vit_base_patch16_224_imagenet`: one file for each backbone.

A preset is a folder with `config.json`, `model.weights.h5` and, for a classifier, `task.json` and
`task.weights.h5`. Layers are named by class and order of creation. Presets can only be read.
"""

from keras_vit.checkpoints.families.keras_hub import clip, dino, vit

FAMILIES = (*vit.FAMILIES, *clip.FAMILIES, *dino.FAMILIES)
