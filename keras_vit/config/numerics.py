"""The arithmetic that a set of weights was trained with."""

import dataclasses

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import SHARE, choice

GELU_FORMS = ("tanh", "exact", "quick")
"""Forms of the GELU; `"quick"` is x * sigmoid(1.702 x), as in CLIP."""
GATES = ("silu", "gelu")
"""Activations of the gate of a gated MLP."""
STD_CONV_FORMS = ("std_plus_epsilon", "sqrt_var_plus_epsilon")
"""Where the epsilon stands that standardises the kernels of a hybrid's convolutions."""
POSITION_RESIZES = (
    "bilinear_align_corners",
    "bilinear_half_pixel",
    "bilinear_longer_side",
    "bilinear_antialias",
    "bicubic",
    "bicubic_catmull_rom",
    "bicubic_antialias",
)
"""Ways to resize position embeddings to another grid."""


@dataclasses.dataclass(frozen=True)
class Numerics(Fields):
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
            order 1), `"bilinear_half_pixel"`, `"bilinear_longer_side"` (the same to a square of
            the longer side, whose first rows and columns count: RADIO), `"bilinear_antialias"`
            (SigLIP 2),
            `"bicubic"` (transformers), `"bicubic_catmull_rom"` (keras-hub on JAX) or
            `"bicubic_antialias"` (timm).
        pool_before_norm: True if the last norm follows the mean of `"gap"` (timm), False if
            it precedes the mean (the official code).
        gate: activation of a gated MLP's gate: `"silu"`, or `"gelu"` in the form of the
            argument `gelu`.

    Raises:
        ConfigError: a form is unknown or an epsilon is negative.
    """

    _prefix = "numerics."

    gelu: str = field("tanh", choice(*GELU_FORMS))
    layer_norm_epsilon: float = field(1e-6, SHARE)
    group_norm_epsilon: float = field(1e-6, SHARE)
    std_conv: str = field("std_plus_epsilon", choice(*STD_CONV_FORMS))
    std_conv_epsilon: float = field(1e-5, SHARE)
    position_resize: str = field("bilinear_align_corners", choice(*POSITION_RESIZES))
    pool_before_norm: bool = False
    gate: str = field("silu", choice(*GATES))
