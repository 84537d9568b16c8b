"""keras-hub's `DINOV2Backbone`, such as `dinov2_base`.

The tokens of the embedding are numbered, and a token that a model lacks shifts the numbers
behind it. The file stores positions twice: unchanged, and resized to the images of the
backbone. keras-hub and keras_vit compute the resized positions again when they load the file.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect
from keras_vit.checkpoints.dialects.json_fields import (
    Codec,
    Json,
    JsonField,
    JsonFields,
    Row,
    number,
)
from keras_vit.checkpoints.dialects.keras_hub.common import (
    backbone_family,
    images,
    read_image,
    size_rows,
)
from keras_vit.checkpoints.dialects.names import Section
from keras_vit.checkpoints.dialects.torch_conventions import IMAGENET
from keras_vit.checkpoints.dialects.transformers.dinov2 import read_mlp
from keras_vit.config import ViTConfig
from keras_vit.images.protocols import ProtocolSpec

MASK_TOKEN = JsonField("use_mask_token", "tokens.mask", default=True)
"""A row that DINOv2 and DINOv3 share."""


def _imagenet(config: ViTConfig) -> ProtocolSpec:
    """Returns the protocol of both families' converters, with mean and std of ImageNet."""
    return {"name": "keras_hub", "mean": IMAGENET["mean"], "std": IMAGENET["std"]}


def dino_family(
    name: str,
    class_name: str,
    rows: tuple[Row, ...],
    names: Section,
    fields: Mapping[str, Any],
    **more: Any,
) -> Dialect:
    """Returns the dialect of DINOv2 or DINOv3; arguments as of `backbone_family`."""
    return backbone_family(
        f"keras_hub/{name}",
        class_name,
        rows,
        names,
        fields={"num_classes": 0, "pool.kind": "token", "block.layer_scale": 1e-5, **fields},
        images=dataclasses.replace(images, default=_imagenet),
        **more,
    )


_NAMES: Section = {
    "patch_embedding": "layers/dinov2_embedding/patch_embeddings/projection",
    "mask_token/token": "layers/dinov2_embedding/vars/1 : 1 m",
    "class_token/token": "layers/dinov2_embedding/vars/0",
    "register_tokens/tokens": [
        {"name": "layers/dinov2_embedding/vars/2", "when": "tokens.mask"},
        {"name": "layers/dinov2_embedding/vars/1", "when": "tokens.mask!"},
    ],
    "position_embedding/embedding": [
        {"name": "layers/dinov2_embedding/vars/4", "when": "tokens.mask tokens.registers"},
        {"name": "layers/dinov2_embedding/vars/3", "when": "tokens.mask tokens.registers!"},
        {"name": "layers/dinov2_embedding/vars/3", "when": "tokens.mask! tokens.registers"},
        {"name": "layers/dinov2_embedding/vars/2", "when": "tokens.mask! tokens.registers!"},
    ],
    "block_{l}/attention_norm": "layers/dinov2_encoder/layers/dinov2_layer{_l}/norm1",
    "block_{l}/attention/{qkv}": "layers/dinov2_encoder/layers/dinov2_layer{_l}/attention/attention/{qkv}_dense",
    "block_{l}/attention/out": "layers/dinov2_encoder/layers/dinov2_layer{_l}/attention/attention/output_dense",
    "block_{l}/attention_scale": "layers/dinov2_encoder/layers/dinov2_layer{_l}/layer_scale1",
    "block_{l}/mlp_norm": "layers/dinov2_encoder/layers/dinov2_layer{_l}/norm2",
    "block_{l}/mlp/dense_0": "layers/dinov2_encoder/layers/dinov2_layer{_l}/mlp/fc1",
    "block_{l}/mlp/{gate}/kernel": "layers/dinov2_encoder/layers/dinov2_layer{_l}/mlp/weights_in/vars/0 : m (gate f)",
    "block_{l}/mlp/{gate}/bias": "layers/dinov2_encoder/layers/dinov2_layer{_l}/mlp/weights_in/vars/1 : (gate f)",
    "block_{l}/mlp/dense_1": [
        {"name": "layers/dinov2_encoder/layers/dinov2_layer{_l}/mlp/fc2", "when": "block.gated!"},
        "layers/dinov2_encoder/layers/dinov2_layer{_l}/mlp/weights_out",
    ],
    "block_{l}/mlp_scale": "layers/dinov2_encoder/layers/dinov2_layer{_l}/layer_scale2",
    "encoder_norm": "layers/layer_normalization",
}


def _resized_positions(config: ViTConfig) -> dict[str, str]:
    position = 1 + config.tokens.mask + (config.tokens.registers > 0)
    name = f"layers/dinov2_embedding/vars/{position}"
    return {name: "positions that the library computes from the others"}


def _read_image(content: Json) -> dict[str, Any]:
    fields = read_image(content)
    height, width = content["position_embedding_shape"][:2]
    patch = content["patch_size"]
    return {**fields, "position_grid": (height // patch, width // patch)}


_RESIZE = Codec(str, lambda antialias: "bicubic_antialias" if antialias else "bicubic_catmull_rom")

_dinov2 = dino_family(
    "dinov2",
    "DINOV2Backbone",
    (
        *size_rows(
            "",
            JsonFields(
                ("image_shape", "position_embedding_shape"),
                ("image_size", "channels", "position_grid"),
                _read_image,
            ),
        ),
        JsonFields(
            ("intermediate_dim", "use_swiglu_ffn"),
            ("block.gated", "block.activation", "mlp_dim"),
            lambda content: read_mlp(content, number(content, "intermediate_dim")),
        ),
        JsonField("layer_scale_init_value", "block.layer_scale"),
        JsonField("num_register_tokens", "tokens.registers", default=0),
        JsonField("dropout_rate", "dropout_rate"),
        JsonField("drop_path_rate", "stochastic_depth_rate"),
        JsonField("antialias_in_interpolation", "position_resize", _RESIZE, default=False),
        MASK_TOKEN,
    ),
    _NAMES,
    {"position": "learned_except_registers", "block.qkv_bias": True},
    derived=_resized_positions,
    needs_json="which numbered array is which token",
    arithmetic={"block.activation": "gelu", "position_resize": "bicubic_catmull_rom"},
)

FAMILIES = (_dinov2,)
