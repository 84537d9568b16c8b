"""Checkpoints of timm (huggingface/pytorch-image-models): one file for each kind of model.

A checkpoint on the Hub is a folder with `model.safetensors` and `config.json`. The safetensors
file can also be read alone, but it does not state the number of heads.
"""

from keras_vit.checkpoints.dialects.timm.vit import vit

FAMILIES = (vit,)
"""If several families can hold a model, the first is written."""
