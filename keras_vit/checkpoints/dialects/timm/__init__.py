"""Checkpoints of timm (huggingface/pytorch-image-models): one dialect for each class.

As the Hub holds them: a folder with `model.safetensors` and `config.json`, or the safetensors file
alone. timm hides arithmetic behind the name of an architecture, which the file alone lacks
(`architectures.py`).
"""

from keras_vit.checkpoints.dialects.timm.eva import eva
from keras_vit.checkpoints.dialects.timm.vit import vit

FAMILIES = (vit, eva)
"""Of several families that can hold a model, the first is written."""
