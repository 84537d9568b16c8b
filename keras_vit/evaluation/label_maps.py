"""Label maps: a class for every pixel of an image, in files or arrays, beside a grid of patches."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from PIL import ExifTags

from keras_vit.errors import ConfigError
from keras_vit.images.decoding import name_source, open_image
from keras_vit.images.inputs import Pixels
from keras_vit.images.resampling import read_size
from keras_vit.support.interpolation import resampling_matrix

_BAND = 16
"""Rows of pixels whose logits are in memory at a time."""


def read_map(labels: Any, k: int) -> np.ndarray:
    """Returns the label map of image `k`, integers `(height, width)`."""
    array = labels
    if isinstance(labels, (str, os.PathLike)):
        with open_image(labels) as image:
            if image.format in ("JPEG", "MPO"):
                raise ConfigError(
                    f"{name_source(labels)}: a JPEG file changes values; expected a label map "
                    "in PNG."
                )
            array = np.asarray(image)
    array = np.asarray(array)
    if array.ndim != 2 or array.dtype.kind not in "iub":
        raise ConfigError(
            f"{_map_name(labels, k)}: expected whole numbers (height, width), found {array.dtype} "
            f"{array.shape}."
        )
    return array.astype("int64")


def check_maps(
    sources: Sequence[Any], label_maps: Any, num_classes: int | None, ignore: int
) -> int:
    """Returns the number of classes of label maps that fit their images."""
    if isinstance(label_maps, (str, os.PathLike)) or not hasattr(label_maps, "__len__"):
        raise ConfigError(
            f"label_maps: expected an array or a list, found {type(label_maps).__name__}."
        )
    if len(sources) != len(label_maps):
        raise ConfigError(
            f"{len(sources)} images and {len(label_maps)} label maps: expected as many."
        )
    most = -1
    for k, (source, labels) in enumerate(zip(sources, label_maps, strict=True)):
        array, size = read_map(labels, k), _own_size(source)
        if array.shape != size:
            raise ConfigError(
                f"{_map_name(labels, k)}: {array.shape[0]}x{array.shape[1]} pixels, expected "
                f"{size[0]}x{size[1]}, the size of its image."
            )
        values = array[array != ignore]
        limit = np.inf if num_classes is None else num_classes
        odd = values[(values < 0) | (values >= limit)]
        if len(odd):
            raise ConfigError(
                f"{_map_name(labels, k)}: value {odd[0]}, expected classes from 0"
                f"{'' if num_classes is None else f' to {num_classes - 1}'}, or {ignore} for "
                "pixels to ignore."
            )
        most = max(most, int(values.max(initial=-1)))
    if most < 0:
        raise ConfigError(f"No pixel of {len(sources)} label maps has a class.")
    return most + 1 if num_classes is None else num_classes


def measure_areas(
    labels: np.ndarray, grid: tuple[int, int], classes: int, ignore: int
) -> np.ndarray:
    """Returns the share of each class in the area of each patch, `(patches, classes)`."""
    rows, columns = (_overlaps(*pair) for pair in zip(grid, labels.shape, strict=True))
    areas = np.zeros((*grid, classes))
    for k in set(np.unique(labels)) - {ignore}:
        areas[..., k] = rows @ (labels == k) @ columns.T
    return areas.reshape(-1, classes)


def resize_grid(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns numbers `(rows, columns, channels)`, resized bilinearly to `(height, width)`."""
    rows, columns = _matrices(values, size)
    return np.einsum("hr,wc,rck->hwk", rows, columns, values, optimize=True)


def label_map(logits: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns the class of the largest logit of each pixel, int32 `(height, width)`."""
    rows, columns = _matrices(logits, size)
    wide = np.einsum("wc,rck->rwk", columns, logits, optimize=True)
    labels = np.empty(size, "int32")
    for start in range(0, size[0], _BAND):
        band = np.tensordot(rows[start : start + _BAND], wide, 1)
        labels[start : start + _BAND] = band.argmax(axis=-1)
    return labels


def _matrices(values: np.ndarray, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Yields the matrices that resize rows and columns."""
    if min(size) < 1:
        raise ConfigError(f"size={size}: expected (height, width) in pixels.")
    for source, target in zip(values.shape[:2], size, strict=True):
        yield resampling_matrix(source, target, "bilinear_half_pixel")


def _own_size(source: Any) -> tuple[int, int]:
    """Returns (height, width) of an upright image, without decoding a pixel."""
    if isinstance(source, ConfigError):
        raise source
    if isinstance(source, Pixels):
        return read_size(source.values)
    with open_image(source) as image:
        is_turned = image.getexif().get(ExifTags.Base.Orientation, 1) > 4
        return (image.width, image.height) if is_turned else (image.height, image.width)


def _map_name(labels: Any, k: int) -> str:
    return name_source(labels) if isinstance(labels, (str, os.PathLike)) else f"label map {k}"


def _overlaps(patches: int, pixels: int) -> np.ndarray:
    """Returns the share of each pixel in the length of each patch, `(patches, pixels)`."""
    length = pixels / patches
    start, pixel = length * np.arange(patches)[:, None], np.arange(pixels)
    common = np.minimum(start + length, pixel + 1) - np.maximum(start, pixel)
    return np.maximum(common, 0) / length
