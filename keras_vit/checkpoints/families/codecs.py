"""Codecs for families of several libraries: DINOv2, DINOv3 and BEiT."""

from collections.abc import Callable
from typing import Any

from keras_vit.checkpoints.families.keys import (
    Codec,
    Facts,
    Json,
    compute_ratio,
    note,
    number,
    together,
)
from keras_vit.config import ViTConfig

_MLP = "block.gated block.activation mlp_dim"
_RATIOS = range(1, 33)
"""Integer ratios of MLP width to token width to try."""


def _read_mlp(content: Json, hidden: int) -> Facts:
    """Returns the fields of DINOv2's MLP; a gated MLP has two thirds of the plain MLP's width.

    Args:
        content: the library's object, with `use_swiglu_ffn`.
        hidden: width of a plain MLP.
    """
    if not content.get("use_swiglu_ffn"):
        return {"block.gated": False, "mlp_dim": hidden}
    width = (int(hidden * 2 / 3) + 7) // 8 * 8  # a multiple of 8
    return {"block.gated": True, "block.activation": "silu", "mlp_dim": width}


def mlp_by_width(keys: str) -> Codec:
    """Returns the codec of `"width use_swiglu_ffn"`, for files that are only read.

    Its entry must follow that of the activation, which it overrides: DINOv2's gate is always SiLU.
    """
    width = keys.split(maxsplit=1)[0]
    return Codec(_MLP, lambda content: _read_mlp(content, number(content, width)))


def mlp_by_ratio(whole: bool) -> Callable[[str], Codec]:
    """Returns the codec of `"mlp_ratio use_swiglu_ffn"`, or of the ratio alone.

    Its entry must follow that of the activation, as for `mlp_by_width`.

    Args:
        whole: whether the library requires an integer ratio.
    """

    def make(keys: str) -> Codec:
        def read(content: Json) -> Facts:
            ratio = number(content, "mlp_ratio")
            return _read_mlp(content, int(number(content, "hidden_size") * ratio))

        def write(config: ViTConfig) -> dict[str, Any]:
            gated, hidden = config.block.gated, config.mlp_dim
            if gated:
                hidden = hidden * 3 // 2
            for ratio in _RATIOS if whole else [compute_ratio(hidden, config.hidden_size)]:
                own = {"mlp_ratio": ratio, "use_swiglu_ffn": gated}
                if read({"hidden_size": config.hidden_size, **own})["mlp_dim"] == config.mlp_dim:
                    return {key: own[key] for key in keys.split()}
            raise ValueError(f"mlp_dim={config.mlp_dim}, which no mlp_ratio gives")

        return Codec(_MLP, read, write)

    return make


def biases(keys: str) -> Codec:
    """Returns the codec of `"query key value"`, DINOv3's biases; by default the key has no bias."""
    names = keys.split()

    def read(content: Json) -> Facts:
        own = tuple(content.get(name, name != names[1]) for name in names)
        return {"block.qkv_bias": own if own.count(own[0]) < 3 else own[0]}

    def write(config: ViTConfig) -> dict[str, Any]:
        own = config.block.qkv_bias
        return dict(zip(names, (own,) * 3 if isinstance(own, bool) else own, strict=True))

    return Codec("block.qkv_bias", read, write)


def dinov3_rope(key: str) -> Codec:
    """Returns the codec of the base frequency of DINOv3's rotary positions."""
    return Codec(
        "rope",
        lambda content: {"rope": {"form": "dinov3", "theta": float(number(content, key))}},
        lambda config: {key: config.rope.theta if config.rope else 100.0},
    )


def layer_scale_or_zero(key: str) -> Codec:
    """Returns the codec of the initial value of BEiT's layer scale; 0 means no layer scale."""
    return Codec(
        "block.layer_scale",
        lambda content: {"block.layer_scale": content[key] if (content[key] or 0) > 0 else None},
        lambda config: {key: config.block.layer_scale or 0.0},
    )


mask_token = note(lambda config: config.tokens.mask)
"""The key for a mask token, which the arrays show."""

relative_bias = together(
    "relative_position_bias",
    {(False, False): None, (True, False): "block", (False, True): "shared"},
)
"""The keys for one table of relative position biases per block, and for one shared table."""
