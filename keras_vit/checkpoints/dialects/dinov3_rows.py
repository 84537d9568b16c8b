"""JSON rows of transformers' `DINOv3ViTModel` and keras-hub's `DINOV3Backbone` by their keys."""

from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Limits
from keras_vit.checkpoints.dialects.json_fields import Codec, JsonField, JsonFields, Row, one_of
from keras_vit.config import Rope, ViTConfig

GELUS = {
    "gelu": "exact",
    "gelu_pytorch_tanh": "tanh",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "quick_gelu": "quick",
}
"""transformers' name of an activation -> its form in `Numerics.gelu`."""

_ACTIVATIONS = {**{word: ("gelu", form) for word, form in GELUS.items()}, "silu": ("silu", "exact")}


def _activation(config: ViTConfig) -> str:
    if config.mlp == "gated" and config.numerics.gate == "silu":
        return "silu"
    return str(one_of(GELUS).write(config.numerics.gelu))


_THETA = Codec(
    lambda rope: rope.theta if rope else 100.0,
    lambda theta: Rope(form="dinov3", theta=float(theta)),
)


def dinov3_rows(
    biases: tuple[str, str, str],
    projection_bias: str,
    mlp_bias: str,
    activation: str,
    layer_scale: str,
) -> tuple[Row, ...]:
    """Returns the rows of the optional parts of a DINOv3 block.

    Args:
        biases: the library's keys for the biases of query, key and value.
        projection_bias, mlp_bias, activation, layer_scale: the library's keys for these parts.
    """

    def read_biases(content: Mapping[str, Any]) -> dict[str, Any]:
        own = tuple(content.get(key, key != biases[1]) for key in biases)
        return {"qkv_bias": own[0] if len(set(map(repr, own))) == 1 else own}

    def write_biases(config: ViTConfig) -> dict[str, Any]:
        one = config.qkv_bias
        own = (one, one, one) if isinstance(one, bool) else one
        return dict(zip(biases, own, strict=True))

    def read_mlp(content: Mapping[str, Any]) -> dict[str, Any]:
        word = content.get(activation, "gelu")
        if content.get("use_gated_mlp"):
            gate, gelu = one_of(_ACTIVATIONS).read(word)
            return {"mlp": "gated", "numerics.gate": gate, "numerics.gelu": gelu}
        gelu = one_of(GELUS).read(word)
        return {"mlp": "plain", "numerics.gate": "silu", "numerics.gelu": gelu}

    return (
        JsonFields(biases, ("qkv_bias",), read_biases, write_biases),
        JsonField(projection_bias, "projection_bias", default=True),
        JsonField(mlp_bias, "mlp_bias", default=True),
        JsonFields(
            (activation, "use_gated_mlp"),
            ("mlp", "numerics.gelu", "numerics.gate"),
            read_mlp,
            lambda c: {activation: _activation(c), "use_gated_mlp": c.mlp == "gated"},
        ),
        JsonField("layer_norm_eps", "numerics.layer_norm_epsilon", default=1e-5),
        JsonField("rope_theta", "rope", _THETA, default=100.0),
        JsonField("num_register_tokens", "num_registers", default=0),
        JsonField("attention_dropout", "attention_dropout_rate"),
        JsonField("drop_path_rate", "stochastic_depth_rate"),
        JsonField(layer_scale, "layer_scale_init"),
    )


OWN_ROPE: Limits = {
    "rope=None": "rope!",
    "a rope of another form than 'dinov3'": (
        "rope rope.form!=dinov3 or rope.offset or rope.reference_grid or rope.indexing=xy"
    ),
}
"""Refusals of models whose positions DINOv3 cannot express."""
