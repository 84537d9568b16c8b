"""Resizes a decoded image to the model's size, by the rules of each protocol."""

import math
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.images.geometry import Axis, compute_axes
from keras_vit.images.resampling import (
    RESIZE_OF_TENSORFLOW,
    Picture,
    Size,
    read_pixels,
    read_size,
    resize_as_tensor,
    resize_with_pillow,
)

_MOST_PIXELS = 2**26
"""Most pixels of a resized image before its central crop."""


def resize(image: Picture, size: Size, parameters: dict[str, Any]) -> np.ndarray:
    """Returns an image at the model's size, `(height, width, channels)`, in [0, 255].

    Args:
        image: a Pillow image, or uint8 or float32 pixels `(height, width, channels)`.
        size: (height, width) of the model.
        parameters: a complete protocol.

    Raises:
        ConfigError: a long and thin image would take gigabytes before its crop.
    """
    name = parameters["name"]
    if parameters.get("crop_mode") == "border":
        return _resize_into_frame(image, size, parameters)
    axes = find_axes(read_size(image), size, parameters)
    target = int(axes[0].target), int(axes[1].target)
    rows, columns = (slice(int(a.begin), int(a.begin) + a.length) for a in axes)
    crop = rows, columns
    if "interpolation" in parameters:
        return _resize_by_filter(image, target, parameters, crop)
    part = tuple(slice(int(axis.first), int(axis.first + axis.source)) for axis in axes)
    pixels = read_pixels(image)[part]
    method, antialias = parameters.get("method", "bilinear"), parameters.get("antialias", False)
    resized = RESIZE_OF_TENSORFLOW[method, antialias](pixels, target)[crop]
    if name == "big_vision":  # it casts back to the type of its input, which truncates
        return np.clip(resized, 0, 255).astype(pixels.dtype, copy=False)
    if name == "keras_hub" and pixels.dtype == np.uint8:  # as Keras's Resizing
        return np.rint(resized)
    return resized


def find_axes(image_size: Size, size: Size, parameters: dict[str, Any]) -> list[Axis]:
    """Returns the resize and crop of height and width, as `compute_axes`.

    Raises:
        ConfigError: as `resize`.
    """
    # TensorFlow computes sizes in float32, Python in float64.
    kind: Any = np.float64 if "crop_mode" in parameters else np.float32
    axes = compute_axes((kind(image_size[0]), kind(image_size[1])), size, parameters, np)
    _check_size(*(int(axis.target) for axis in axes))
    return axes


def _resize_by_filter(
    image: Picture, target: Size, parameters: dict[str, Any], crop: tuple[slice, slice]
) -> np.ndarray:
    """Returns a part of the image at another size, by a filter of Pillow or of torchvision."""
    interpolation, form = parameters["interpolation"], parameters.get("resize", "pillow")
    if form == "pillow":
        return resize_with_pillow(image, target, interpolation)[crop]
    pixels = read_pixels(image)
    if form == "tensor":
        return resize_as_tensor(pixels, target, interpolation, crop)
    # DINOv3's processor rescales before it resizes, which rounds otherwise.
    pixels = pixels.astype(np.float32) * np.float32(1 / 255)
    return resize_as_tensor(pixels, target, interpolation, crop) * np.float32(255)


def _resize_into_frame(image: Picture, size: Size, parameters: dict[str, Any]) -> np.ndarray:
    """Returns the whole image in a frame of the mean colour, and of it the middle."""
    scaled = [math.floor(side / parameters["crop_pct"]) for side in size]
    height, width = read_size(image)
    ratio = max(height / scaled[0], width / scaled[1])
    target = _check_size(max(round(height / ratio), 1), max(round(width / ratio), 1))
    inner = resize_with_pillow(image, target, parameters["interpolation"])
    high, wide = (max(have, want) for have, want in zip(target, size, strict=True))
    top, left = (high - target[0]) // 2, (wide - target[1]) // 2
    framed = np.empty((high, wide, inner.shape[2]), inner.dtype)
    framed[:] = np.round(255 * np.asarray(parameters["mean"]))
    framed[top : top + target[0], left : left + target[1]] = inner
    top, left = round((high - size[0]) / 2), round((wide - size[1]) / 2)
    return framed[top : top + size[0], left : left + size[1]]


def _check_size(height: int, width: int) -> Size:
    """Returns the size; refuses a long and thin image that would take gigabytes before its crop.

    Raises:
        ConfigError: the size has more than `_MOST_PIXELS` pixels.
    """
    if height * width > _MOST_PIXELS:
        raise ConfigError(
            f"The image is too long: it would have {height}x{width} pixels before its central "
            "crop. Crop it first, or choose a protocol that squashes."
        )
    return height, width
