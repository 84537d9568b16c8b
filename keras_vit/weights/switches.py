"""Parts that other families add to the paper's model, and that a dialect may or may not support.

If a dialect does not name a switch, its library lacks that part: files are read without it, and
models that use it are refused.
"""

import dataclasses
from collections.abc import Callable

from keras_vit.config import ViTConfig


@dataclasses.dataclass(frozen=True)
class Switch:
    """One possible difference between a model and the paper's.

    Args:
        words: name of the part that a library lacks, for messages.
        is_used: whether a model has the part.
    """

    words: str
    is_used: Callable[[ViTConfig], bool]


DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(ViTConfig)
    if field.default is not dataclasses.MISSING
}


def _field(name: str, words: str) -> Switch:
    return Switch(words, lambda config: getattr(config, name) != DEFAULTS[name])


SWITCHES = {
    "distillation_token": _field("distillation_token", "a distillation token"),
    "num_registers": _field("num_registers", "register tokens"),
    "mask_token": _field("mask_token", "a mask token"),
    "prefix_in_map": _field("prefix_in_map", "attention pooling of the patches alone"),
    "map_num_heads": _field("map_num_heads", "another number of heads in attention pooling"),
    "map_mlp_dim": _field("map_mlp_dim", "another width in attention pooling"),
    "projection_dim": _field("projection_dim", "a projection behind the pooling"),
    "rope": _field("rope", "rotary positions"),
    "patch_bias": _field("patch_bias", "patches without a bias"),
    "patch_norm": _field("patch_norm", "a norm behind the patches"),
    "pre_norm": _field("pre_norm", "a norm before the blocks"),
    "norm": _field("norm", "RMSNorm"),
    "final_norm": _field("final_norm", "an encoder without a last norm"),
    "projection_bias": _field("projection_bias", "an attention output without a bias"),
    "mlp_bias": _field("mlp_bias", "an MLP without biases"),
    "mlp": _field("mlp", "a gated MLP"),
    "sub_norm_attention": _field("sub_norm_attention", "a norm inside the attention"),
    "sub_norm_mlp": _field("sub_norm_mlp", "a norm inside the MLP"),
    "layer_scale": _field("layer_scale", "layer scale"),
    # Single values of fields whose other values every dialect supports.
    "token_and_mean": Switch(
        "a head that reads class token and mean", lambda c: c.classifier == "token_and_mean"
    ),
    "token_and_distillation": Switch("a distillation head", lambda c: c.has_two_heads),
    "no_position": Switch("a model without positions", lambda c: c.position == "none"),
    "single_biases": Switch(
        "biases of some of query, key and value alone",
        lambda c: not isinstance(c.qkv_bias, bool),
    ),
}
"""All switches, by the field of `ViTConfig` or by a name for one value of a field."""
