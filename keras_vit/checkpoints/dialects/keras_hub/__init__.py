"""Presets of keras-hub: one file for each backbone.

A folder with `config.json`, `model.weights.h5` and, for a classifier, `task.json` and
`task.weights.h5`. Layers are named by class and order of creation.
"""

from keras_vit.checkpoints.dialects.keras_hub.vit import vit

FAMILIES = (vit,)
"""Of several families that can hold a model, the first is written."""
