"""DINOv3ViTModel: rotary positions, registers, layer scale, no bias of the key."""

from keras_vit.checkpoints.dialects.base import Names, StoredAs
from keras_vit.checkpoints.dialects.dinov3_rows import DINOV3_SWITCHES, OWN_ROPE, dinov3_rows
from keras_vit.checkpoints.dialects.torch_layout import torch_modules
from keras_vit.checkpoints.dialects.transformers.common import (
    NO_HEAD,
    architectures,
    dialect,
    needs,
    size_rows,
)

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

dinov3 = dialect(
    "dinov3_vit",
    _WORDS,
    (
        architectures(None, "DINOv3ViTModel"),
        *size_rows(),
        *dinov3_rows(
            biases=("query_bias", "key_bias", "value_bias"),
            projection_bias="proj_bias",
            mlp_bias="mlp_bias",
            activation="hidden_act",
            layer_scale="layerscale_value",
        ),
    ),
    epsilon=1e-5,
    resize="bilinear_align_corners",
    positions=("none",),
    prefixes=("", "model."),
    needs_json="theta of the rotary positions",
    expresses=("gelu", "gate", "layer_norm_epsilon", "position_resize"),
    fields={"classifier": "token", "layer_scale": True, "mask_token": True},
    switches=DINOV3_SWITCHES,
    impossible=(
        *needs(layer_scale=True, mask_token=True),
        NO_HEAD,
        *OWN_ROPE,
    ),
)
