"""Checkpoints of timm (huggingface/pytorch-image-models): one dialect for each class.

A checkpoint is a folder with `model.safetensors` and `config.json`, as in the Hub's
`timm/vit_base_patch16_224.augreg_in21k`, or the safetensors file alone. In timm the name of an
architecture implies arithmetic (`architectures.py`); for a file alone, the caller gives the name
(`by_name.py`).
"""

from keras_vit.checkpoints.dialects.timm.eva import eva
from keras_vit.checkpoints.dialects.timm.naflex import naflex
from keras_vit.checkpoints.dialects.timm.vit import vit

FAMILIES = (vit, eva, naflex)
"""If several families can hold a model, the first is written."""
