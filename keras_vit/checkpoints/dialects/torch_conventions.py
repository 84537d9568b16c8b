"""Conventions of libraries on torch: ImageNet's preparation of images, and stored image sizes."""

from typing import Any

from keras_vit.config import ViTConfig

IMAGENET: dict[str, Any] = {
    "name": "timm",
    "crop_pct": 0.875,
    "interpolation": "bicubic",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}
"""The preparation of ImageNet's images that most of torch's models were trained with."""


def stored_image_size(config: ViTConfig) -> tuple[int, int]:
    """Returns the image size to write: the model's, or the size of the stored positions."""
    if config.image_size is not None:
        return config.image_size
    rows, columns = config.source_grid
    return rows * config.stride[0], columns * config.stride[1]


def _resizes_positions(config: ViTConfig) -> bool:
    return not config.native_aspect and config.grid not in (None, config.source_grid)


POSITIONS_OF_ANOTHER_GRID = (
    _resizes_positions,
    "positions stored for another grid than that of image_size",
)
"""A limit of timm and transformers, which resize positions on loading and not per call.

Their models for images at their own aspect ratio do resize positions per image.
"""
