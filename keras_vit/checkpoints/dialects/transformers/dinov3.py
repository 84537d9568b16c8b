"""DINOv3ViTModel: rotary positions, registers, layer scale, no bias of the key."""

from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Names, StoredAs, unsupported
from keras_vit.checkpoints.dialects.json_fields import (
    JsonConstant,
    JsonField,
    JsonFields,
    JsonTable,
    Row,
    one_of,
)
from keras_vit.checkpoints.dialects.torch_layout import torch_modules
from keras_vit.checkpoints.dialects.transformers.common import (
    GELUS,
    VIT_REASONS,
    architectures,
    has_head,
    impossible,
    needs,
    size_rows,
)
from keras_vit.checkpoints.dialects.transformers.processor import processor
from keras_vit.config import Numerics, Rope, ViTConfig

_BLOCK = "layer.{l}."
_MLP = _BLOCK + "mlp."

_WORDS: dict[str, Names] = {
    "class_token/token": StoredAs("embeddings.cls_token"),
    "mask_token/token": StoredAs("embeddings.mask_token"),
    "register_tokens/tokens": StoredAs("embeddings.register_tokens"),
    **torch_modules(
        {
            "patch_embedding": "embeddings.patch_embeddings",
            "block_{l}/attention_norm": _BLOCK + "norm1",
            "block_{l}/attention/{qkv}": _BLOCK + "attention.{q}_proj",
            "block_{l}/attention/out": _BLOCK + "attention.o_proj",
            "block_{l}/mlp_norm": _BLOCK + "norm2",
            "block_{l}/mlp/dense_0": _MLP + "up_proj",
            "block_{l}/mlp/{gate}": _MLP + "{up}_proj",
            "block_{l}/mlp/dense_1": _MLP + "down_proj",
            "encoder_norm": "norm",
        }
    ),
    "block_{l}/attention_scale/gamma": StoredAs(_BLOCK + "layer_scale1.lambda1"),
    "block_{l}/mlp_scale/gamma": StoredAs(_BLOCK + "layer_scale2.lambda1"),
}

_ACTIVATIONS = {**{word: ("gelu", form) for word, form in GELUS.items()}, "silu": ("silu", "exact")}


def _biases(config: ViTConfig) -> tuple[bool, bool, bool]:
    one = config.qkv_bias
    return (one, one, one) if isinstance(one, bool) else one


def _activation(config: ViTConfig) -> str:
    if config.mlp != "plain" and config.numerics.gate == "silu":
        return "silu"
    return one_of(GELUS).write(config.numerics.gelu)


def _mlp_of(found: Mapping[str, Any]) -> dict[str, Any]:
    gate, gelu = _ACTIVATIONS[found.get("hidden_act", "gelu")]
    if found.get("use_gated_mlp"):
        return {"mlp": "gated", "numerics.gate": gate, "numerics.gelu": gelu}
    return {"mlp": "plain", "numerics.gate": "silu", "numerics.gelu": gelu}


def _one_or_three(found: Mapping[str, Any]) -> bool | tuple[bool, ...]:
    biases = tuple(found.get(key, key != "key_bias") for key in _BIASES)
    return biases[0] if len(set(map(repr, biases))) == 1 else biases


_BIASES = ("query_bias", "key_bias", "value_bias")

_ROWS: tuple[Row, ...] = (
    architectures(None, "DINOv3ViTModel"),
    JsonConstant("model_type", "dinov3_vit"),
    *size_rows(),
    JsonFields(
        _BIASES,
        ("qkv_bias",),
        lambda found: {"qkv_bias": _one_or_three(found)},
        lambda c: dict(zip(_BIASES, _biases(c), strict=True)),
    ),
    JsonField("proj_bias", "projection_bias", default=True),
    JsonField("mlp_bias", "mlp_bias", default=True),
    JsonFields(
        ("hidden_act", "use_gated_mlp"),
        ("mlp", "numerics.gelu", "numerics.gate"),
        _mlp_of,
        lambda c: {"hidden_act": _activation(c), "use_gated_mlp": c.mlp != "plain"},
    ),
    JsonField("layer_norm_eps", "numerics.layer_norm_epsilon", default=1e-5),
    JsonFields(
        ("rope_theta",),
        ("rope",),
        lambda found: {"rope": Rope(form="dinov3", theta=float(found.get("rope_theta", 100.0)))},
        lambda c: {"rope_theta": c.rope.theta if c.rope else 100.0},
    ),
    JsonField("num_register_tokens", "num_registers", default=0),
    JsonField("attention_dropout", "attention_dropout_rate"),
    JsonField("drop_path_rate", "stochastic_depth_rate"),
    JsonField("layerscale_value", "layer_scale_init"),
)

dinov3 = Dialect(
    name="transformers/dinov3_vit",
    library="transformers",
    container="safetensors",
    words=unsupported(VIT_REASONS, _WORDS),
    prefixes=("", "model."),
    identity=Identity("config.json", "model_type", "dinov3_vit", "'dinov3_vit'"),
    json=(JsonTable("config.json", _ROWS),),
    images=processor,
    numerics=Numerics(gelu="exact", layer_norm_epsilon=1e-5),
    expresses=("gelu", "gate", "layer_norm_epsilon", "position_resize"),
    fields={
        "classifier": "token",
        "position": "none",
        "layer_scale": True,
        "mask_token": True,
    },
    switches=(
        "single_biases",
        "projection_bias",
        "mlp_bias",
        "mlp",
        "num_registers",
        "rope",
        "layer_scale",
        "mask_token",
        "no_position",
    ),
    impossible=(
        *impossible("token", position="none"),
        *needs(layer_scale=True, mask_token=True),
        (has_head, "a head: transformers has no classifier of this family"),
        (lambda c: c.rope is None, "rope=None"),
        (lambda c: c.rope not in (None, _own_rope(c)), "a rope of another form than 'dinov3'"),
    ),
    crops=False,
    metadata={"format": "pt"},
)


def _own_rope(config: ViTConfig) -> Rope | None:
    return config.rope and Rope(form="dinov3", theta=config.rope.theta)
