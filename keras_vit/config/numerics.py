"""The arithmetic that a set of weights was trained with."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.config.rules import choice, each, enforce, is_bool, is_share, known_fields

GELU_FORMS = ("tanh", "exact", "quick")
"""Forms of the GELU; `"quick"` is x * sigmoid(1.702 x), as in CLIP."""
GATES = ("silu", "gelu")
"""Activations of the gate of a gated MLP."""
STD_CONV_FORMS = ("std_plus_epsilon", "sqrt_var_plus_epsilon")
"""Where the epsilon stands that standardises the kernels of a hybrid's convolutions."""
POSITION_RESIZES = (
    "bilinear_align_corners",
    "bilinear_half_pixel",
    "bilinear_antialias",
    "bicubic",
    "bicubic_catmull_rom",
    "bicubic_antialias",
)
"""Ways to resize position embeddings to another grid."""

_EPSILONS = "layer_norm_epsilon group_norm_epsilon std_conv_epsilon"
_RULES = (
    choice("gelu", GELU_FORMS),
    choice("gate", GATES),
    choice("std_conv", STD_CONV_FORMS),
    choice("position_resize", POSITION_RESIZES),
    *each(_EPSILONS, is_share, "a number in [0, 1)"),
    *each("pool_before_norm", is_bool, "a bool"),
)


@dataclasses.dataclass(frozen=True)
class Numerics:
    """The arithmetic that a set of weights was trained with.

    Defaults are the official code's. Converted weights come with the values of their library.

    Args:
        gelu: form of GELU. `"tanh"`: the approximation that `flax.linen.gelu` computes;
            `"exact"`: the form of torch and Keras; `"quick"`: CLIP's `x * sigmoid(1.702 x)`.
        layer_norm_epsilon: added to the variance in every LayerNorm.
        group_norm_epsilon: added to the variance in every GroupNorm of the stem.
        std_conv: standardisation of a kernel. `"std_plus_epsilon"`:
            `(w - mean) / (std + epsilon)`; `"sqrt_var_plus_epsilon"`:
            `(w - mean) / sqrt(var + epsilon)`.
        std_conv_epsilon: the epsilon of `std_conv`.
        position_resize: resampling of position embeddings to another grid:
            `"bilinear_align_corners"` (the official `scipy.ndimage.zoom` of
            order 1), `"bilinear_half_pixel"`, `"bilinear_antialias"` (SigLIP 2),
            `"bicubic"` (transformers), `"bicubic_catmull_rom"` (keras-hub on JAX) or
            `"bicubic_antialias"` (timm).
        pool_before_norm: True if the last norm follows the mean of `"gap"` (timm), False if
            it precedes the mean (the official code).
        gate: activation of a gated MLP's gate: `"silu"`, or `"gelu"` in the form of the
            argument `gelu`.

    Raises:
        ConfigError: a form is unknown or an epsilon is negative.
    """

    gelu: str = "tanh"
    layer_norm_epsilon: float = 1e-6
    group_norm_epsilon: float = 1e-6
    std_conv: str = "std_plus_epsilon"
    std_conv_epsilon: float = 1e-5
    position_resize: str = "bilinear_align_corners"
    pool_before_norm: bool = False
    gate: str = "silu"

    def __post_init__(self) -> None:
        enforce(self, _RULES, "numerics.")
        for field in _EPSILONS.split():
            object.__setattr__(self, field, float(getattr(self, field)))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain JSON types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Numerics":
        """Builds from `to_dict()`'s output. Raises `ConfigError` on an unknown field."""
        return cls(**known_fields(cls, fields, "numerics."))
