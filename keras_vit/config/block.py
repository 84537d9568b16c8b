"""The options of a Transformer block, in which families of Vision Transformers differ."""

import dataclasses
from typing import Any

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import SHARE, Values, choice, is_number

ACTIVATIONS = ("gelu_tanh", "gelu", "quick_gelu", "silu")
"""Activations of the MLP; `"quick_gelu"` is x * sigmoid(1.702 x), as in CLIP."""
NORMS = ("layer", "rms")
"""Kinds of norms: LayerNorm and RMSNorm."""


def _is_bias(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) == 3 and {*map(type, value)} == {bool} and len({*value}) == 2
    return isinstance(value, bool)


_BIASES = Values(_is_bias, "a bool, or one each for query, key and value if they differ")
_NUMBER_OR_NONE = Values(lambda v: v is None or is_number(v), "a number or None")


@dataclasses.dataclass(frozen=True)
class Block(Fields):
    """The options of a Transformer block (Eqs. 2 and 3); the defaults are those of the paper.

    Args:
        norm: kind of every norm of the model: `"layer"` for LayerNorm; `"rms"` for RMSNorm, which
            does not subtract the mean and has no bias (AIMv2).
        epsilon: added to the variance in every norm.
        activation: activation of the MLP, or of its gate: `"gelu_tanh"`, the approximation that
            `flax.linen.gelu` computes; `"gelu"`, the exact form of PyTorch and Keras;
            `"quick_gelu"`, CLIP's `x * sigmoid(1.702 x)`; `"silu"`, `x * sigmoid(x)`.
        gated: whether the MLP is gated: `W_1 (act(W_g x) * W_0 x)`, which is SwiGLU with `"silu"`
            (DINOv2-g, DINOv3, EVA-02). A plain MLP is `W_1 act(W_0 x)`.
        qkv_bias: whether the projections to query, key and value have biases; a triple
            of bools if they differ (EVA-02 and DINOv3 have no bias for the key).
        projection_bias: whether the output projection of attention has a bias.
        mlp_bias: whether the linear layers of the MLP have biases.
        qk_norm: norm of queries and keys, before any rotation: `"head"` normalizes each head, with
            weights that the heads share (`qk_norm` of timm); `"width"` normalizes all heads
            together (InternVL 6B); None for no such norm.
        sub_norm: norm before the last linear layer of a branch: `"mlp"`, in the MLP (EVA-02);
            `"attention"`, before the output projection; `"both"` (BEiT-3); None for no such norm.
        layer_scale: initial value of a learned factor per channel of each residual branch
            (DeiT-III, DINOv2, DINOv3); None for no such factor.
        input_norm: norm before the first block: `"patches"` normalizes the projected patches
            (AIMv2); `"tokens"` normalizes all tokens, after the position embedding (CLIP); None
            for no such norm.

    Raises:
        ConfigError: a field is invalid; the message names it, its value and the valid values.
    """

    norm: str = field("layer", choice(*NORMS), lacking="RMSNorm")
    epsilon: float = field(1e-6, SHARE)
    activation: str = field("gelu_tanh", choice(*ACTIVATIONS))
    gated: bool = field(False, lacking="a gated MLP")
    qkv_bias: bool | tuple[bool, bool, bool] = field(
        True, _BIASES, "different biases for query, key and value", plain=(True, False)
    )
    projection_bias: bool = field(True, lacking="attention without an output bias")
    mlp_bias: bool = field(True, lacking="an MLP without biases")
    qk_norm: str | None = field(
        None, choice("head", "width", None), lacking="norms of queries and keys"
    )
    sub_norm: str | None = field(
        None,
        choice("mlp", "attention", "both", None),
        lacking={
            "mlp|both": "a norm inside the MLP",
            "attention|both": "a norm inside the attention",
        },
    )
    layer_scale: float | None = field(None, _NUMBER_OR_NONE, lacking="layer scale")
    input_norm: str | None = field(
        None,
        choice("patches", "tokens", None),
        lacking={"patches": "a norm of the patches", "tokens": "a norm before the blocks"},
    )

    def __post_init__(self) -> None:
        if isinstance(self.qkv_bias, list):
            self._set("qkv_bias", tuple(self.qkv_bias))
        super().__post_init__()

    @property
    def biased_projections(self) -> tuple[str, ...]:
        """The names among query, key and value whose projections have a bias."""
        names = ("query", "key", "value")
        if isinstance(self.qkv_bias, bool):
            return names if self.qkv_bias else ()
        return tuple(name for name, has in zip(names, self.qkv_bias, strict=True) if has)
