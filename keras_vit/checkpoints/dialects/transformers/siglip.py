"""transformers' SigLIP (arXiv 2303.15343), and SigLIP 2 (arXiv 2502.14786) in its NaFlex form."""

import dataclasses
import math
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Feature
from keras_vit.checkpoints.dialects.json_fields import Json, JsonFields, constant, note, number
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.transformers import common
from keras_vit.checkpoints.dialects.transformers.towers import (
    NAMES,
    NO_CLASSES,
    TOWER,
    WITH_TEXT,
    Encoder,
    tower,
    tower_inside,
)
from keras_vit.config import ViTConfig

_OWN: Section = {
    "pool/probe": "head.probe",
    "pool/attention/{qkv}/kernel": "head.attention.in_proj_weight : (qkv h d) m",
    "pool/attention/{qkv}/bias": "head.attention.in_proj_bias : (qkv h d)",
    "pool/attention/out": "head.attention.out_proj",
    "pool/norm": "head.layernorm",
    "pool/mlp/dense_0": "head.mlp.fc1",
    "pool/mlp/dense_1": "head.mlp.fc2",
}
_OWN_2: Section = {
    "patch_embedding/kernel": "embeddings.patch_embedding.weight : m (p q c)",
}

_SIGLIP = Encoder(
    "siglip",
    TORCH.names(NAMES, _OWN),
    common.tower_rows("gelu_pytorch_tanh", 1e-6),
    common.tower_sizes(768, 3072, 12, 12, 224, 16) | {"num_channels": 3},
    {"block.qkv_bias": True},
    {"activation": "gelu_tanh"},
    refusals=common.SQUARE_ALONE,
)


def _read_grid_size(content: Json) -> dict[str, Any]:
    return {"image_size": math.isqrt(content["num_patches"]) * number(content, "patch_size")}


def _write_grid_size(config: ViTConfig) -> dict[str, Any]:
    return {"num_patches": math.prod(config.source_grid)}


def _read_limit(content: Json) -> dict[str, Any]:
    """Returns an image of as many patches as the processor allows, and the grid of positions.

    The image is square, or one row of patches if no square has this number.
    """
    if content.get("max_num_patches") is None:
        return {}
    most, patch = number(content, "max_num_patches"), number(content, "patch_size")
    if most < 1:
        raise ValueError("expected at least 1")
    side, stored = math.isqrt(most), math.isqrt(number(content, "num_patches"))
    grid = (side, side) if side * side == most else (1, most)
    return {
        "image_size": (grid[0] * patch, grid[1] * patch),
        "position_grid": (stored, stored),
    }


_SIGLIP_2 = dataclasses.replace(
    _SIGLIP,
    model_type="siglip2",
    words={**_SIGLIP.words, **TORCH.names(_OWN_2)},
    rows=(
        JsonFields(("num_patches",), ("image_size",), _read_grid_size, _write_grid_size),
        *(row for row in _SIGLIP.rows if row is not common.IMAGE_SIZE),
    ),
    sizes={**_SIGLIP.sizes, "num_patches": 256},
    fields={**_SIGLIP.fields, "stem.kind": "packed"},
    more={"activation": "gelu_tanh", "resize": "bilinear_antialias", "needs_json": "patch_size"},
    limit=JsonFields(
        ("max_num_patches",),
        ("image_size", "position_grid"),
        _read_limit,
        lambda config: {"max_num_patches": config.packed_shape[0]},
    ),
)
"""SigLIP 2 in its NaFlex form: patches come as rows of a matrix, which a convolution equals.

The class resizes positions for each image by torch's antialiased bilinear resize.
"""


def _siglip(encoder: Encoder, name: str) -> tuple[Dialect, ...]:
    """Returns the dialects of a tower, with its head and without, under a classifier, beside text.

    Args:
        encoder: SigLIP or SigLIP 2.
        name: start of the names of its classes.
    """
    skipped = "an attention pooling that the class does not use"
    unpooled = {p: names for p, names in encoder.words.items() if not p.startswith("pool/")}
    without_head = note("vision_use_head", False)
    return (
        tower(
            encoder,
            f"{name}VisionModel",
            "map",
            {},
            prefixes=("", TOWER),
        ),
        tower(
            dataclasses.replace(encoder, words=unpooled),
            f"{name}VisionModel",
            "gap",
            {},
            name=f"{encoder.model_type}_encoder",
            rows=(constant("vision_use_head", False),),
            prefixes=("", TOWER),
            feature=Feature(first_patch=0),
        ),
        tower_inside(
            dataclasses.replace(encoder, words=unpooled, rows=(*encoder.rows, without_head)),
            f"{name}ForImageClassification",
            "gap",
            common.classifier_names(),
            name=f"{encoder.model_type}_classifier",
            fields={},
            refusals=NO_CLASSES,
            ignored={r"vision_model\.head\..*": skipped},
        ),
        tower_inside(
            encoder,
            f"{name}Model",
            "map",
            {},
            only_read=WITH_TEXT,
            feature=Feature(f"{name}VisionModel"),
        ),
    )


FAMILIES = (
    *_siglip(_SIGLIP, "Siglip"),
    *_siglip(_SIGLIP_2, "Siglip2"),
)
