"""keras-hub's `DINOV2Backbone`, such as `dinov2_base`.

The tokens of the embedding are numbered, and a token that a model lacks shifts the numbers
behind it. The file stores positions twice: unchanged, and resized to the images of the
backbone. keras-hub and keras_vit compute the resized positions again when they load the file.
"""

from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.json_fields import (
    JsonField,
    JsonFields,
    Row,
    number,
    one_of,
)
from keras_vit.checkpoints.dialects.keras_hub.common import (
    TOKENS_AND_NORM,
    dino_family,
    image_shape,
    size_rows,
)
from keras_vit.checkpoints.dialects.keras_hub.converter import fitting_image_size
from keras_vit.checkpoints.dialects.names import Section
from keras_vit.checkpoints.dialects.transformers import dinov2
from keras_vit.checkpoints.dialects.transformers.dinov2 import read_mlp, write_hidden
from keras_vit.config import Numerics, ViTConfig
from keras_vit.config.weights.conditions import state_others

_NAMES: Section = {
    "patch_embedding": "layers/dinov2_embedding/patch_embeddings/projection",
    "mask_token/token": "layers/dinov2_embedding/vars/1 : 1 m",
    "class_token/token": "layers/dinov2_embedding/vars/0",
    "register_tokens/tokens": [
        {"name": "layers/dinov2_embedding/vars/2", "when": "mask_token"},
        {"name": "layers/dinov2_embedding/vars/1", "when": "mask_token!"},
    ],
    "position_embedding/embedding": [
        {"name": "layers/dinov2_embedding/vars/4", "when": "mask_token num_registers"},
        {"name": "layers/dinov2_embedding/vars/3", "when": "mask_token num_registers!"},
        {"name": "layers/dinov2_embedding/vars/3", "when": "mask_token! num_registers"},
        {"name": "layers/dinov2_embedding/vars/2", "when": "mask_token! num_registers!"},
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
        {"name": "layers/dinov2_encoder/layers/dinov2_layer{_l}/mlp/fc2", "when": "mlp=plain"},
        "layers/dinov2_encoder/layers/dinov2_layer{_l}/mlp/weights_out",
    ],
    "block_{l}/mlp_scale": "layers/dinov2_encoder/layers/dinov2_layer{_l}/layer_scale2",
    "encoder_norm": "layers/layer_normalization",
}

_RESIZES = {
    True: "bicubic_antialias",
    False: "bicubic_catmull_rom",
    None: "bicubic_catmull_rom",
}
"""keras-hub's `antialias_in_interpolation` -> the same in `Numerics.position_resize`."""


def _resized_positions(config: ViTConfig) -> dict[str, str]:
    position = 1 + config.mask_token + (config.num_registers > 0)
    name = f"layers/dinov2_embedding/vars/{position}"
    return {name: "positions that the library computes from the others"}


def _read_image(content: Mapping[str, Any]) -> dict[str, Any]:
    fields = image_shape(content)
    height, width = content["position_embedding_shape"][:2]
    patch = content["patch_size"]
    return {**fields, "position_grid": (height // patch, width // patch)}


def _image_to(config: ViTConfig) -> dict[str, Any]:
    stored = fitting_image_size(config)
    return {
        "image_shape": [*(config.image_size or stored), config.channels],
        "position_embedding_shape": [*stored, config.channels],
    }


_ROWS: tuple[Row, ...] = (
    *size_rows(
        "",
        image=JsonFields(
            ("image_shape", "position_embedding_shape"),
            ("image_size", "channels", "position_grid"),
            _read_image,
            _image_to,
        ),
    ),
    JsonFields(
        ("intermediate_dim", "use_swiglu_ffn"),
        ("mlp", "mlp_dim"),
        lambda content: read_mlp(content, number(content, "intermediate_dim")),
        lambda c: {"intermediate_dim": write_hidden(c), "use_swiglu_ffn": c.mlp == "gated"},
    ),
    JsonField("layer_scale_init_value", "layer_scale_init"),
    JsonField("num_register_tokens", "num_registers", default=0),
    JsonField("dropout_rate", "dropout_rate"),
    JsonField("drop_path_rate", "stochastic_depth_rate"),
    JsonField(
        "antialias_in_interpolation",
        "numerics.position_resize",
        one_of(_RESIZES),
        default=False,
        write=lambda facts: facts.config.numerics.position_resize == _RESIZES[True],
    ),
    *TOKENS_AND_NORM,
)


_dinov2 = dino_family(
    "dinov2",
    "DINOV2Backbone",
    _ROWS,
    _NAMES,
    derived=_resized_positions,
    needs_json="which numbered array is which token",
    numerics=Numerics(gelu="exact", position_resize="bicubic_catmull_rom"),
    expresses=("position_resize",),
    fields={
        "position": "learned",
        "position_before_class": False,
        "position_before_registers": True,
        "qkv_bias": True,
    },
    sample={
        **dinov2.SAMPLE,
        "num_classes": 0,
        "pooling": "token",
        "num_registers": 2,
        "position_before_registers": True,
    },
    impossible={
        "a grid that is not square": "source_grid!=square or table_grid!=square",
        **dinov2.UNEVEN,
    },
    limits={
        "positions that are resized by another method": "grid grid!=source_grid "
        + state_others("numerics.position_resize", *_RESIZES.values())
    },
)

FAMILIES = (_dinov2,)
