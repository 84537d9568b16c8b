"""Explanations of a prediction: attention weights, and maps over images."""

from keras_vit.explanation.attention import attention_maps, attention_rollout, read_tokens
from keras_vit.explanation.display import brightness, foreground, patch_colours
from keras_vit.explanation.maps import Explanation

__all__ = [
    "Explanation",
    "attention_maps",
    "attention_rollout",
    "brightness",
    "foreground",
    "patch_colours",
    "read_tokens",
]
__dir__ = __all__.copy
