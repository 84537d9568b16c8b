"""keras-hub's `DINOV2Backbone` and `DINOV3Backbone`, such as `dinov2_base`.

The tokens of the embedding are numbered, and a token that a model lacks shifts the numbers
behind it. DINOv2 stores its positions twice: unchanged, and resized to the images of the
backbone. keras-hub and keras_vit compute the resized positions again when they load the file.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect
from keras_vit.checkpoints.dialects.dinov3_rows import OWN_ROPE, dinov3_rows
from keras_vit.checkpoints.dialects.json_fields import (
    JsonField,
    JsonFields,
    JsonNote,
    Row,
    number,
    one_of,
)
from keras_vit.checkpoints.dialects.keras_hub.common import encoder_family, image_shape, size_rows
from keras_vit.checkpoints.dialects.keras_hub.converter import converter, fitting_image_size
from keras_vit.checkpoints.dialects.names import KERAS
from keras_vit.checkpoints.dialects.torch_conventions import IMAGENET
from keras_vit.checkpoints.dialects.transformers.dinov2 import read_mlp, swiglu_width
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.models.config import Numerics, ViTConfig
from keras_vit.models.weights.conditions import state_others

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
    grid = (height // patch, width // patch)
    same = grid == tuple(side // patch for side in fields["image_size"])
    return {**fields, "position_grid": None if same else grid}


def _image_to(config: ViTConfig) -> dict[str, Any]:
    stored = fitting_image_size(config)
    return {
        "image_shape": [*(config.image_size or stored), config.channels],
        "position_embedding_shape": [*stored, config.channels],
    }


def _write_hidden(config: ViTConfig) -> int:
    """Returns keras-hub's `intermediate_dim`: for a gated MLP it is 3/2 of the width."""
    return config.mlp_dim if config.mlp == "plain" else config.mlp_dim * 3 // 2


_TOKENS_AND_NORM: tuple[Row, ...] = (
    JsonField("use_mask_token", "mask_token", default=True),
    JsonNote("apply_layernorm", lambda facts: False),
)

_ROWS2: tuple[Row, ...] = (
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
        lambda c: {"intermediate_dim": _write_hidden(c), "use_swiglu_ffn": c.mlp == "gated"},
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
    *_TOKENS_AND_NORM,
)


def _imagenet(config: ViTConfig) -> ProtocolSpec:
    """Returns the protocol of both families' converters, with mean and std of ImageNet."""
    return {"name": "keras_hub", "mean": IMAGENET["mean"], "std": IMAGENET["std"]}


def _dino(
    name: str, class_name: str, rows: tuple[Row, ...], fields: Mapping[str, Any], **more: Any
) -> Dialect:
    return encoder_family(
        name,
        f"{name}.{name}_backbone",
        class_name,
        rows,
        {"pooling": "token", "layer_scale": True, **fields},
        words=KERAS.names(f"keras_hub/{name}"),
        reasons={"": "keras-hub's family has no such part"},
        images=dataclasses.replace(converter, default=_imagenet),
        **more,
    )


dinov2 = _dino(
    "dinov2",
    "DINOV2Backbone",
    _ROWS2,
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
    impossible={
        "a grid that is not square": "source_grid!=square or table_grid!=square",
        "a gated MLP whose width is no multiple of 8": lambda c: (
            c.mlp == "gated" and swiglu_width(_write_hidden(c)) != c.mlp_dim
        ),
    },
    limits={
        "positions that are resized by another method": "grid grid!=source_grid "
        + state_others("numerics.position_resize", *_RESIZES.values())
    },
)

dinov3 = _dino(
    "dinov3",
    "DINOV3Backbone",
    (
        *size_rows(),
        *dinov3_rows(
            biases=("use_query_bias", "use_key_bias", "use_value_bias"),
            projection_bias="use_proj_bias",
            mlp_bias="use_mlp_bias",
            activation="hidden_activation",
            layer_scale="layer_scale_init_value",
        ),
        *_TOKENS_AND_NORM,
    ),
    needs_json="theta of the rotary positions",
    numerics=Numerics(gelu="exact", layer_norm_epsilon=1e-5),
    expresses=("gelu", "gate", "layer_norm_epsilon", "position_resize"),
    fields={"position": "none"},
    switches=("qkv_bias",),
    impossible=OWN_ROPE,
)
