"""keras-hub's `DINOV2Backbone` and `DINOV3Backbone`, such as `dinov2_base`.

The tokens of the embedding are numbered, and a token that a model lacks shifts the numbers
behind it. DINOv2 stores its positions twice: unchanged, and resized to the images of the
backbone. keras-hub and keras_vit compute the resized positions again when they load the file.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import with_reasons
from keras_vit.checkpoints.dialects.dinov3_rows import OWN_ROPE, dinov3_rows
from keras_vit.checkpoints.dialects.json_fields import (
    JsonField,
    JsonFields,
    JsonNote,
    Row,
    number,
)
from keras_vit.checkpoints.dialects.keras_hub.common import (
    encoder_family,
    image_shape,
    size_rows,
)
from keras_vit.checkpoints.dialects.keras_hub.converter import converter, fitting_image_size
from keras_vit.checkpoints.dialects.names import KERAS
from keras_vit.checkpoints.dialects.transformers.common import impossible
from keras_vit.checkpoints.dialects.transformers.dinov2 import swiglu_width
from keras_vit.config import Numerics, ViTConfig
from keras_vit.images.protocols import ProtocolSpec

_REASONS = {"": "keras-hub's family has no such part"}
_BACKBONE_ALONE = {"classifier": "token", "num_classes": 0}


def _resized_positions(config: ViTConfig) -> dict[str, str]:
    position = 1 + config.mask_token + (config.num_registers > 0)
    name = f"layers/dinov2_embedding/vars/{position}"
    return {name: "positions that the library computes from the others"}


def _image_of(content: Mapping[str, Any]) -> dict[str, Any]:
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


def _hidden_of(config: ViTConfig) -> int:
    """Returns keras-hub's `intermediate_dim`: for a gated MLP it is 3/2 of the width."""
    return config.mlp_dim if config.mlp == "plain" else config.mlp_dim * 3 // 2


def _mlp_of(content: Mapping[str, Any]) -> dict[str, Any]:
    hidden = number(content, "intermediate_dim")
    if content.get("use_swiglu_ffn"):
        return {"mlp": "gated", "mlp_dim": swiglu_width(hidden)}
    return {"mlp": "plain", "mlp_dim": hidden}


_ROWS2: tuple[Row, ...] = (
    *size_rows(
        "",
        image=JsonFields(
            ("image_shape", "position_embedding_shape"),
            ("image_size", "channels", "position_grid"),
            _image_of,
            _image_to,
        ),
    ),
    JsonFields(
        ("intermediate_dim", "use_swiglu_ffn"),
        ("mlp", "mlp_dim"),
        _mlp_of,
        lambda c: {"intermediate_dim": _hidden_of(c), "use_swiglu_ffn": c.mlp == "gated"},
    ),
    JsonField("layer_scale_init_value", "layer_scale_init"),
    JsonField("num_register_tokens", "num_registers", default=0),
    JsonField("use_mask_token", "mask_token", default=True),
    JsonField("dropout_rate", "dropout_rate"),
    JsonField("drop_path_rate", "stochastic_depth_rate"),
    JsonFields(
        ("antialias_in_interpolation",),
        ("numerics.position_resize",),
        lambda content: {
            "numerics.position_resize": (
                "bicubic_antialias"
                if content.get("antialias_in_interpolation")
                else "bicubic_catmull_rom"
            )
        },
        lambda c: {"antialias_in_interpolation": c.numerics.position_resize == "bicubic_antialias"},
    ),
    JsonNote("apply_layernorm", lambda facts: False),
)


def _is_resized_otherwise(config: ViTConfig) -> bool:
    resized = config.grid not in (None, config.source_grid)
    return resized and config.numerics.position_resize not in (
        "bicubic_catmull_rom",
        "bicubic_antialias",
    )


_FIXED = {**_BACKBONE_ALONE, "layer_scale": True}


def _imagenet(config: ViTConfig) -> ProtocolSpec:
    """Returns the protocol of both families' converters, with mean and std of ImageNet."""
    return {"name": "keras_hub", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


dinov2 = encoder_family(
    "dinov2",
    "dinov2.dinov2_backbone",
    "DINOV2Backbone",
    _ROWS2,
    words=with_reasons(_REASONS, KERAS.names("keras_hub/dinov2")),
    derived=_resized_positions,
    needs_json="which numbered array is which token",
    images=dataclasses.replace(converter, default=_imagenet),
    numerics=Numerics(gelu="exact", position_resize="bicubic_catmull_rom"),
    expresses=("position_resize",),
    fields={
        **_FIXED,
        "position": "learned",
        "position_before_class": False,
        "position_before_registers": True,
        "qkv_bias": True,
    },
    impossible=(
        *impossible("token"),
        (
            lambda c: len({*c.source_grid}) > 1 or len({*(c.grid or (1,))}) > 1,
            "a grid that is not square",
        ),
        (
            lambda c: c.mlp == "gated" and swiglu_width(_hidden_of(c)) != c.mlp_dim,
            "a gated MLP whose width is no multiple of 8",
        ),
    ),
    limits=((_is_resized_otherwise, "positions that are resized by another method"),),
)

dinov3 = encoder_family(
    "dinov3",
    "dinov3.dinov3_backbone",
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
        JsonField("use_mask_token", "mask_token", default=True),
        JsonNote("apply_layernorm", lambda facts: False),
    ),
    words=with_reasons(_REASONS, KERAS.names("keras_hub/dinov3")),
    needs_json="theta of the rotary positions",
    images=dataclasses.replace(converter, default=_imagenet),
    numerics=Numerics(gelu="exact", layer_norm_epsilon=1e-5),
    expresses=("gelu", "gate", "layer_norm_epsilon", "position_resize"),
    fields={**_FIXED, "position": "none"},
    switches=("qkv_bias",),
    impossible=(*impossible("token", positions=("none",)), *OWN_ROPE),
)
