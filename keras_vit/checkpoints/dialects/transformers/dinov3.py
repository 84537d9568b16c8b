"""DINOv3ViTModel: rotary positions, registers, layer scale, no bias of the key."""

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Names, StoredAs, unsupported
from keras_vit.checkpoints.dialects.dinov3_rows import OWN_ROPE, dinov3_rows
from keras_vit.checkpoints.dialects.json_fields import JsonConstant, JsonTable, Row
from keras_vit.checkpoints.dialects.torch_layout import torch_modules
from keras_vit.checkpoints.dialects.transformers.common import (
    VIT_REASONS,
    architectures,
    has_head,
    impossible,
    needs,
    size_rows,
)
from keras_vit.checkpoints.dialects.transformers.processor import processor
from keras_vit.config import Numerics

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

_ROWS: tuple[Row, ...] = (
    architectures(None, "DINOv3ViTModel"),
    JsonConstant("model_type", "dinov3_vit"),
    *size_rows(),
    *dinov3_rows(
        biases=("query_bias", "key_bias", "value_bias"),
        projection_bias="proj_bias",
        mlp_bias="mlp_bias",
        activation="hidden_act",
        layer_scale="layerscale_value",
    ),
)

dinov3 = Dialect(
    name="transformers/dinov3_vit",
    library="transformers",
    container="safetensors",
    words=unsupported(VIT_REASONS, _WORDS),
    prefixes=("", "model."),
    needs_json="theta of the rotary positions",
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
        "qkv_bias",
        "projection_bias",
        "mlp_bias",
        "mlp",
        "num_registers",
        "rope",
        "layer_scale",
        "mask_token",
        "position",
    ),
    impossible=(
        *impossible("token", position="none"),
        *needs(layer_scale=True, mask_token=True),
        (has_head, "a head: transformers has no classifier of this family"),
        *OWN_ROPE,
    ),
    crops=False,
    metadata={"format": "pt"},
)
