"""Resizes images by TensorFlow's filters, in NumPy, and by Pillow's filters.

An image is an array `(height, width, channels)`, or a Pillow image. TensorFlow's filters are
implemented here exactly, because the published scores depend on their rounding.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from PIL import Image

from keras_vit.images.protocols import FILTERS
from keras_vit.support.interpolation import cubic, resampling_weights, triangle

Size = tuple[int, int]
Picture: TypeAlias = Image.Image | np.ndarray

_FILTERS = {name: Image.Resampling[name.upper()] for name in FILTERS}
_STRIP, _TENSOR_STRIP = 64, 16  # lines that are computed at once


def read_pixels(image: Picture) -> np.ndarray:
    """Returns the pixels of an image, `(height, width, channels)`."""
    pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def make_picture(pixels: np.ndarray) -> Image.Image:
    """Returns uint8 pixels `(height, width, channels)` as a Pillow image."""
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))


def read_size(image: Picture) -> Size:
    """Returns (height, width) of an image."""
    if isinstance(image, np.ndarray):
        return image.shape[0], image.shape[1]
    return image.height, image.width


def resize_with_pillow(image: Picture, size: tuple[int, ...], interpolation: str) -> np.ndarray:
    """Returns an image at another size by one of Pillow's filters, which antialias.

    The result for an array of floats is an array of floats, whose channels are resized one by one
    and clipped to [0, 255].
    """
    to, resample = (size[1], size[0]), _FILTERS[interpolation]
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.shape[2] != 3:
            channels = [Image.fromarray(np.ascontiguousarray(c)) for c in np.moveaxis(image, -1, 0)]
            resized = np.stack([np.asarray(c.resize(to, resample)) for c in channels], axis=-1)
            return np.clip(resized, 0, 255, out=resized)  # bicubic overshoots
        image = Image.fromarray(np.ascontiguousarray(image))
    return read_pixels(image.resize(to, resample))


def resize_as_tensor(
    image: np.ndarray, size: Size, interpolation: str, crop: tuple[slice, slice]
) -> np.ndarray:
    """Returns a part of an array at another size by torchvision's antialiased filters on tensors.

    Whole numbers stay whole numbers: torch rounds the weights to 16 bits, and the pixels to 8 bits
    after each axis, columns first. For floats it computes the weights in float32
    (`aten/src/ATen/native/cpu/UpSampleKernel.cpp`).

    Args:
        image: uint8 or float `(height, width, channels)`.
        size: (height, width).
        interpolation: `"bilinear"` or `"bicubic"`, whose a is -0.5.
        crop: rows and columns of the part.
    """
    pixels, bits = image, 0
    for axis in (1, 0):
        before, part = (slice(None),) * axis, crop[axis]
        if pixels.shape[axis] == size[axis]:
            pixels = pixels[(*before, part)]
            continue
        strips = _strips(pixels.shape[axis], size[axis], interpolation, image.dtype == np.uint8)
        if image.dtype == np.uint8:
            bits = int(np.floor(np.log2((2**15 - 1) / max(w.max() for _, w in strips))))
        first, sums = part.start // _TENSOR_STRIP, []
        for read, weights in strips[first : -(-part.stop // _TENSOR_STRIP)]:
            lines, taps = pixels[(*before, read)].astype(np.float64), weights
            if bits:
                taps = np.trunc(weights * 2**bits + np.copysign(0.5, weights))
            total = np.moveaxis(np.tensordot(taps, lines, (1, axis)), 0, axis)
            if bits:
                total = np.floor((total + 2 ** (bits - 1)) / 2**bits)
                total = np.clip(total, 0, 255).astype(np.uint8)
            sums.append(total)
        skipped = first * _TENSOR_STRIP
        inside = slice(part.start - skipped, part.stop - skipped)
        pixels = np.concatenate(sums, axis)[(*before, inside)]
    return pixels.astype(image.dtype if image.dtype == np.uint8 else np.float32)


def _strips(
    source: int, target: int, interpolation: str, is_whole: bool
) -> list[tuple[slice, np.ndarray]]:
    """Returns the old pixels that strips of new pixels read, and the weights of each strip.

    One matrix of all pixels would take gigabytes for a long and thin image.
    """
    reach = (2 if interpolation == "bicubic" else 1) * max(source / target, 1) + 2
    strips = []
    for start in range(0, target, _TENSOR_STRIP):
        new = np.arange(start, min(start + _TENSOR_STRIP, target), dtype=np.float64)[:, None]
        first, last = (new[[0, -1], 0] + 0.5) * source / target
        read = slice(max(int(first - reach), 0), min(int(last + reach), source))
        old = np.arange(read.start, read.stop, dtype=np.float64)
        if is_whole:
            method = f"{interpolation}_antialias"
            weights = np.asarray(resampling_weights(source, target, old, new, method, np))
        else:
            weights = _float32_weights(source, target, old, new, interpolation)
        strips.append((read, weights))
    return strips


def _float32_weights(
    source: int, target: int, old: np.ndarray, new: np.ndarray, interpolation: str
) -> np.ndarray:
    """Returns the weights of old pixels in new pixels of torch for floats, in its precision."""
    half = np.float32(0.5)
    scale = np.float32(source) / np.float32(target)
    narrow = min(1 / scale, np.float32(1))
    centres = scale * (new.astype(np.float32) + half)
    distance = np.abs((old.astype(np.float32) - centres + half) * narrow)
    is_linear = interpolation == "bilinear"
    weights = triangle(distance, np) if is_linear else cubic(distance, -0.5, np)
    # Summed one by one, as torch does: NumPy would add in pairs.
    return weights / np.cumsum(weights, axis=1, dtype=np.float32)[:, -1:]


def resize_bilinear(image: np.ndarray, size: Size) -> np.ndarray:
    """Returns an array at another size: bilinear, half-pixel centres, no antialias."""
    if image.shape[:2] == size:
        return image
    low, high, weight = zip(*map(_neighbours, image.shape[:2], size), strict=True)
    # Four gathers of the target's size leave most of a large photograph unread.
    across = weight[1][:, None]
    top, bottom = (
        left + (part.take(high[1], 1) - left) * across
        for part in (image.take(low[0], 0), image.take(high[0], 0))
        for left in [part.take(low[1], 1).astype(np.float32)]
    )
    return top + (bottom - top) * weight[0][:, None, None]


def resize_bilinear_antialiased(image: np.ndarray, size: Size) -> np.ndarray:
    """Returns an array at another size: bilinear, half-pixel centres, antialiased."""
    for axis in (0, 1):
        image = _weighted_sums(image, axis, *_triangle_taps(image.shape[axis], size[axis]))
    return image


def resize_area(image: np.ndarray, size: Size) -> np.ndarray:
    """Returns an array at another size: each new pixel is the mean of the area that it covers."""
    scales = np.array(image.shape[:2], np.float32) / np.array(size, np.float32)
    # TensorFlow divides by the area last; another order would round some means differently.
    for axis in (1, 0):
        image = _weighted_sums(image, axis, *_area_taps(image.shape[axis], size[axis]))
    return image * (np.float32(1) / (scales[0] * scales[1]))


RESIZE_OF_TENSORFLOW: dict[tuple[str, bool], Callable[[np.ndarray, Size], np.ndarray]] = {
    ("area", False): resize_area,
    ("area", True): resize_area,  # area always antialiases
    ("bilinear", False): resize_bilinear,
    ("bilinear", True): resize_bilinear_antialiased,
}
"""(method, antialias) of `tf.image.resize` -> the function here."""


def _neighbours(source: int, target: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the two nearest old pixels of each new pixel, and the weight of the second."""
    scale = np.float32(source) / np.float32(target)
    position = (np.arange(target, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    floor = np.floor(position)
    low = np.clip(floor, 0, source - 1).astype(np.intp)
    high = np.clip(floor + 1, 0, source - 1).astype(np.intp)
    return low, high, position - floor


def _weighted_sums(
    image: np.ndarray, axis: int, first: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Returns sums of neighbouring pixels along an axis, in float32, in the order of the pixels.

    Args:
        image: `(height, width, channels)`.
        axis: 0 for rows, 1 for columns.
        first: the first pixel of each sum, `(target,)`.
        weights: `(target, pixels)`.
    """
    height, width, channels = image.shape
    shape = (len(first), width, channels) if axis == 0 else (height, len(first), channels)
    sums = np.zeros(shape, np.float32)
    taps = weights.T.astype(np.float32)
    # The innermost loop runs over columns and channels together: a long loop is faster.
    taps = taps[:, :, None] if axis == 0 else np.repeat(taps, channels, axis=1)[:, None]
    last = image.shape[axis] - 1
    # Strips along the other axis keep both arrays in the processor's cache.
    for start in range(0, image.shape[1 - axis], _STRIP):
        strip = (slice(None),) * (1 - axis) + (slice(start, start + _STRIP),)
        lines, total = image[strip], sums[strip]
        pixels = np.empty(total.shape, image.dtype)
        terms = np.empty((total.shape[0], total.shape[1] * channels), np.float32)
        for k, tap in enumerate(taps):
            np.take(lines, np.minimum(first + k, last), axis, out=pixels, mode="clip")
            terms[...] = pixels.reshape(terms.shape)
            terms *= tap
            total += terms.reshape(total.shape)
    return sums


def _area_taps(source: int, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first old pixel of each new pixel, and the covered part of each old pixel."""
    scale = np.float32(source) / np.float32(target)
    start = np.arange(target, dtype=np.float32) * scale
    end = np.arange(1, target + 1, dtype=np.float32) * scale
    first = np.floor(start).astype(np.intp)
    count = int((np.ceil(end) - first).max())
    pixel = (first[:, None] + np.arange(count)).astype(np.float32)
    start, end = start[:, None], end[:, None]
    from_start = np.where(pixel + 1 > end, scale, pixel + 1 - start)
    to_end = np.where(pixel + 1 > end, np.maximum(end - pixel, 0), 1)
    return first, np.where(pixel < start, from_start, to_end)


def _triangle_taps(source: int, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns first pixels and bilinear weights; a shrinking resize widens the triangle."""
    scale = source / target
    reach = max(scale, 1.0)
    middle = (np.arange(target) + 0.5) * scale
    first = np.maximum(np.ceil(middle - reach - 0.5), 0).astype(np.intp)
    pixel = first[:, None] + np.arange(2 * math.ceil(reach) + 1)
    weights = np.maximum(1 - np.abs(pixel + 0.5 - middle[:, None]) / reach, 0) * (pixel < source)
    return first, weights / weights.sum(axis=1, keepdims=True)
