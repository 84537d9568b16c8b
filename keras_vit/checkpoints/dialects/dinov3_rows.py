"""JSON rows of transformers' `DINOv3ViTModel` and keras-hub's `DINOV3Backbone` by their keys."""

from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Limits
from keras_vit.checkpoints.dialects.json_fields import Codec, JsonField, JsonFields, Row, one_of
from keras_vit.config import Rope, ViTConfig

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
}
"""transformers' name of an activation -> `Block.activation`."""

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
        return {"block.qkv_bias": own[0] if len(set(map(repr, own))) == 1 else own}

    def write_biases(config: ViTConfig) -> dict[str, Any]:
        one = config.block.qkv_bias
        return dict(zip(biases, (one, one, one) if isinstance(one, bool) else one, strict=True))

    return (
        JsonFields(biases, ("block.qkv_bias",), read_biases, write_biases),
        JsonField(projection_bias, "block.projection_bias", default=True),
        JsonField(mlp_bias, "block.mlp_bias", default=True),
        JsonField(activation, "block.activation", one_of(ACTIVATIONS), default="gelu"),
        JsonField("use_gated_mlp", "block.gated", default=False),
        JsonField("layer_norm_eps", "block.epsilon", default=1e-5),
        JsonField("rope_theta", "rope", _THETA, default=100.0),
        JsonField("num_register_tokens", "tokens.registers", default=0),
        JsonField("attention_dropout", "attention_dropout_rate"),
        JsonField("drop_path_rate", "stochastic_depth_rate"),
        JsonField(layer_scale, "block.layer_scale"),
    )


SCALED: Limits = {"block.layer_scale=None": "block.layer_scale=None"}
"""Refusals of models without layer scale."""

OWN_ROPE: Limits = {
    "rope=None": "rope!",
    "a rope of another form than 'dinov3'": "rope rope.form!=dinov3 or rope.reference_grid",
}
"""Refusals of models whose positions DINOv3 cannot express."""
