"""Checkpoints of timm (huggingface/pytorch-image-models): one file for each kind of model.

As the Hub holds them: a folder with `model.safetensors` and `config.json`, or the
safetensors file alone, which does not tell the number of heads.
"""

from keras_vit.checkpoints.dialects.timm.vit import vit

FAMILIES = (vit,)
"""Of several families that can hold a model, the first is written."""
