"""Resizes a decoded image to the model's size, by the rules of each protocol.

Each function takes an image, (height, width) and the protocol's parameters, and returns
`(height, width, channels)`, uint8 or float32, in [0, 255].
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.images.resampling import (
    RESIZE_OF_TENSORFLOW,
    Picture,
    Size,
    centre,
    pixels_of,
    resize_as_tensor,
    resize_bilinear,
    resize_with_pillow,
    size_of,
)

_MOST_PIXELS = 2**26
"""Most pixels of a resized image before its central crop."""


def resize_small_for(size: Size, parameters: dict[str, Any]) -> int:
    """Returns the length of the smaller side that big_vision resizes to before its crop."""
    small, meant_for = parameters["resize_small"] or 256, parameters["image_size"] or 224
    return round(small * max(size) / meant_for)


def _paper(image: Picture, size: Size, _: dict[str, Any]) -> np.ndarray:
    return resize_bilinear(pixels_of(image), size)


def _big_vision(image: Picture, size: Size, parameters: dict[str, Any]) -> np.ndarray:
    pixels = pixels_of(image)
    # Sides and factor in float32, rounded half to even, as tf.round does.
    sides = np.array(pixels.shape[:2], np.float32)
    small = np.float32(resize_small_for(size, parameters))
    height, width = np.rint(sides * (small / sides.min()))
    target = _check_size(int(height), int(width))
    resized = RESIZE_OF_TENSORFLOW[parameters["method"], parameters["antialias"]](pixels, target)
    # big_vision casts back to the type of its input, which truncates to whole numbers.
    return np.clip(centre(resized, size), 0, 255).astype(pixels.dtype, copy=False)


def _timm(image: Picture, size: Size, parameters: dict[str, Any]) -> np.ndarray:
    scaled = tuple(math.floor(side / parameters["crop_pct"]) for side in size)
    height, width = size_of(image)
    mode = parameters["crop_mode"]
    if mode == "squash":
        target = scaled
    elif mode == "border":
        ratio = max(height / scaled[0], width / scaled[1])
        target = (max(round(height / ratio), 1), max(round(width / ratio), 1))
    elif scaled[0] == scaled[1]:
        short, long = min(height, width), max(height, width)
        longer = int(scaled[0] * long / short)
        target = (scaled[0], longer) if height <= width else (longer, scaled[0])
    else:
        ratio = min(height / scaled[0], width / scaled[1])
        target = (round(height / ratio), round(width / ratio))
    resized = resize_with_pillow(image, _check_size(*target), parameters["interpolation"])
    if mode == "border":
        resized = _add_frame(resized, size, parameters["mean"])
    # torchvision's center_crop rounds half to even.
    top, left = (round((have - want) / 2) for have, want in zip(resized.shape, size, strict=False))
    return resized[top : top + size[0], left : left + size[1]]


def _transformers(image: Picture, size: Size, parameters: dict[str, Any]) -> np.ndarray:
    height, width = (round(side / parameters["crop_pct"]) for side in size)
    interpolation, form = parameters["interpolation"], parameters["resize"]
    if form == "pillow":
        resized = resize_with_pillow(image, (height, width), interpolation)
    else:
        pixels = pixels_of(image)
        if form == "float":  # DINOv3's processor rescales before it resizes, which rounds otherwise
            pixels = pixels.astype(np.float32) * np.float32(1 / 255)
        resized = resize_as_tensor(pixels, (height, width), interpolation)
        resized = resized * np.float32(255) if form == "float" else resized
    return centre(resized, size)


def _keras_hub(image: Picture, size: Size, parameters: dict[str, Any]) -> np.ndarray:
    pixels = pixels_of(image)
    if parameters["crop_to_aspect_ratio"]:
        height, width = pixels.shape[:2]
        rows = max(min(height, int(np.float32(width * size[0]) / np.float32(size[1]))), 1)
        columns = max(min(width, int(np.float32(height * size[1]) / np.float32(size[0]))), 1)
        pixels = centre(pixels, (rows, columns))
    resized = RESIZE_OF_TENSORFLOW["bilinear", parameters["antialias"]](pixels, size)
    return np.rint(resized) if pixels.dtype == np.uint8 else resized  # as Keras's Resizing


RESIZE: dict[str, Callable[[Picture, Size, dict[str, Any]], np.ndarray]] = {
    "paper": _paper,
    "big_vision": _big_vision,
    "timm": _timm,
    "transformers": _transformers,
    "keras_hub": _keras_hub,
}
"""The resizing function of each protocol, by name."""


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


def _add_frame(image: np.ndarray, size: Size, mean: float | list[float]) -> np.ndarray:
    """Returns the image in a frame of the mean colour that fills it up to `size`."""
    height, width = (max(have, want) for have, want in zip(image.shape, size, strict=False))
    top, left = (height - image.shape[0]) // 2, (width - image.shape[1]) // 2
    framed = np.empty((height, width, image.shape[2]), image.dtype)
    framed[:] = np.round(255 * np.asarray(mean))
    framed[top : top + image.shape[0], left : left + image.shape[1]] = image
    return framed
