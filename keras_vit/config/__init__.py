"""What a Vision Transformer is, as data: frozen, validated, to and from dict.

Field names are those of the paper's own code (`vit_jax/configs/models.py`). Nothing here
imports Keras, so a configuration can be read, checked and shown without starting a backend.
"""

from keras_vit.config.numerics import (
    GELU_FORMS,
    POSITION_RESIZES,
    STD_CONV_FORMS,
    Numerics,
)
from keras_vit.config.stem import GROUP_NORM_GROUPS, ResNetStem
from keras_vit.config.vit import CLASSIFIERS, DEFAULT_IMAGE_SIZE, POSITIONS, ViTConfig

__all__ = [
    "CLASSIFIERS",
    "DEFAULT_IMAGE_SIZE",
    "GELU_FORMS",
    "GROUP_NORM_GROUPS",
    "POSITIONS",
    "POSITION_RESIZES",
    "STD_CONV_FORMS",
    "Numerics",
    "ResNetStem",
    "ViTConfig",
]
