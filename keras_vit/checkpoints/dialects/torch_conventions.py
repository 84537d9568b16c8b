"""Conventions of libraries on torch: ImageNet's preparation of images, and stored image sizes."""

import math
from typing import Any

from keras_vit.checkpoints.dialects.json_fields import Json
from keras_vit.config import ViTConfig

IMAGENET: dict[str, Any] = {
    "name": "timm",
    "crop_pct": 0.875,
    "interpolation": "bicubic",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}
"""The preparation of ImageNet's images that most of torch's models were trained with."""

CLIP: dict[str, Any] = {
    "name": "timm",
    "crop_pct": 1.0,
    "mean": [0.48145466, 0.4578275, 0.40821073],
    "std": [0.26862954, 0.26130258, 0.27577711],
}
"""The preparation of CLIP's images."""


def stored_image_size(config: ViTConfig) -> tuple[int, int]:
    """Returns the image size to write: the model's, or the size of the stored positions."""
    if config.image_size is not None:
        return config.image_size
    rows, columns = config.source_grid
    return rows * config.stride[0], columns * config.stride[1]


POSITIONS_OF_ANOTHER_GRID = {
    "positions of another grid than that of image_size, which loading with image_size= resizes": (
        "stem.kind!=packed grid grid!=source_grid"
    )
}
"""A limit of timm and transformers, which resize positions on loading and not per call.

Their models for images at their own aspect ratio do resize positions per image.
"""


def read_relative_bias(content: Json, keys: tuple[str, str]) -> str | None:
    """Returns `ViTConfig.relative_position_bias` from two keys of which one may be true.

    Args:
        content: the library's object.
        keys: the library's keys for a table in each block, and for one table for all blocks.
    """
    of_block, is_shared = (content.get(key) for key in keys)
    if of_block and is_shared:
        raise ValueError(f"beside {keys[1]}, expected one of them")
    return "block" if of_block else "shared" if is_shared else None


def write_relative_bias(config: ViTConfig, keys: tuple[str, str]) -> dict[str, bool]:
    """Returns the library's two keys for a model; the inverse of `read_relative_bias`."""
    kinds = zip(keys, ("block", "shared"), strict=True)
    return {key: config.relative_position_bias == kind for key, kind in kinds}


def compute_ratio(size: int, width: int) -> float:
    """Returns the ratio whose product with `width`, cut to an int as timm and transformers do, is `size`."""
    ratio = size / width
    return ratio if int(width * ratio) == size else math.nextafter(ratio, math.inf)
