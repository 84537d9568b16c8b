"""The layout that torch's libraries share: names of parameters, and axes with outputs first."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import StoredAs, modules
from keras_vit.config import ViTConfig
from keras_vit.weights.lexicon import LEXICON

_PARAMETERS = {"kernel": ".weight", "gamma": ".weight", "beta": ".bias", "bias": ".bias"}

_KERNEL_AXES = {
    "p q c m": "m c p q",  # convolutions
    "y x i w": "w i y x",
    "y x a o": "o a y x",
    "y x a w": "w a y x",
    "y x w v": "v w y x",
    "y x w o": "o w y x",
    "m h d": "(h d) m",  # matrices
    "h d": "(h d)",
    "h d m": "m (h d)",
    "m f": "f m",
    "f m": "m f",
    "m r": "r m",
    "e k": "k e",
}
"""Axes of the lexicon -> axes of torch; an absent axis string is the same in torch."""


def torch_modules(names: Mapping[str, str]) -> dict[str, StoredAs]:
    """Returns the name and axes of each weight in torch, from the names of torch's modules."""
    axes = {word.path: _KERNEL_AXES.get(word.axes) for word in LEXICON}
    return {
        path: dataclasses.replace(stored, axes=axes[path])
        for path, stored in modules(names, _PARAMETERS).items()
    }


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
    return config.grid not in (None, config.source_grid)


POSITIONS_OF_ANOTHER_GRID = (
    _resizes_positions,
    "positions stored for another grid than that of image_size",
)
"""A limit of timm and transformers, which resize positions on loading and not per call."""
