"""The configuration of a Vision Transformer: frozen, validated, to and from dict.

Field names come from the paper's own code (`vit_jax/configs/models.py`). This package does not
import Keras, so a configuration can be read, checked and shown without starting a backend.
"""

from keras_vit.models.config.numerics import (
    GATES,
    GELU_FORMS,
    POSITION_RESIZES,
    STD_CONV_FORMS,
    Numerics,
)
from keras_vit.models.config.rope import ROPE_FORMS, Rope
from keras_vit.models.config.stem import GROUP_NORM_GROUPS, ResNetStem
from keras_vit.models.config.vit import DEFAULT_IMAGE_SIZE, SWITCHES, ImageSize, ViTConfig
from keras_vit.models.config.vit_rules import (
    FAMILY_POOLINGS,
    MLPS,
    NORMS,
    POOLINGS,
    POSITIONS,
)

__all__ = [
    "DEFAULT_IMAGE_SIZE",
    "FAMILY_POOLINGS",
    "GATES",
    "GELU_FORMS",
    "GROUP_NORM_GROUPS",
    "MLPS",
    "NORMS",
    "POOLINGS",
    "POSITIONS",
    "POSITION_RESIZES",
    "ROPE_FORMS",
    "STD_CONV_FORMS",
    "SWITCHES",
    "ImageSize",
    "Numerics",
    "ResNetStem",
    "Rope",
    "ViTConfig",
]
