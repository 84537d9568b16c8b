"""Packs the patches of images with different shapes into one array.

A packed batch is float32 `(batch, patches, rows * columns * channels + 2)`. Each patch is a vector:
its pixels `(rows, columns, channels)`, followed by the row and the column of the patch in its
image, counted from 0. Padding after the last patch of an image has pixels 0 and position -1.
"""

import math
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError

Size = tuple[int, int]

_EPSILON = 1e-5


def fit_to_patches(size: Size, patch_size: Size, most: int) -> Size:
    """Returns the size to which an image is resized: whole patches, about its aspect ratio.

    Height and width are scaled by the largest factor with which, rounded up to whole patches, they
    have at most `most` patches: `get_image_size_for_max_num_patches` of transformers' NaFlex, and
    `get_image_size_for_seq` of timm.

    Args:
        size: (height, width) of the image.
        patch_size: (rows, columns) of a patch.
        most: largest number of patches.
    """

    def grid(factor: float) -> tuple[int, ...]:
        return tuple(
            max(math.ceil(side * factor / patch), 1)
            for side, patch in zip(size, patch_size, strict=True)
        )

    low, high = _EPSILON / 10, 100.0
    while high - low >= _EPSILON:
        middle = (low + high) / 2
        if math.prod(grid(middle)) <= most:
            low = middle
        else:
            high = middle
    rows, columns = grid(low)
    if rows * columns > most:  # an image millions of pixels long
        raise ConfigError(f"An image of {size} pixels is too long for {most} patches.")
    return rows * patch_size[0], columns * patch_size[1]


def pack_image(image: np.ndarray, patch_size: Size, most: int) -> np.ndarray:
    """Packs an image `(height, width, channels)` of whole patches."""
    (high, wide), channels = patch_size, image.shape[-1]
    rows, columns = image.shape[0] // high, image.shape[1] // wide
    patches = image.reshape(rows, high, columns, wide, channels).swapaxes(1, 2)
    return pack(patches.reshape(1, rows * columns, -1), [(rows, columns)], most)[0]


def pack(patches: Any, shapes: Any, most: int, mask: Any = None) -> np.ndarray:
    """Makes a packed batch from the arrays of another library.

    Args:
        patches: `(batch, patches, rows * columns * channels)`, in the model's range.
        shapes: rows and columns of patches of each image, `(batch, 2)`.
        most: number of patches of the packed batch.
        mask: `(batch, patches)`, true for patches and false for padding; optional.

    Raises:
        ConfigError: an image has more than `most` patches or more than are given; or its mask has
            another number of patches than its shape.
    """
    patches, shapes = np.asarray(patches, np.float32), np.asarray(shapes)
    if patches.ndim != 3 or shapes.shape != (len(patches), 2):
        raise ConfigError(
            "Expected patches (batch, patches, values of a patch) with shapes (batch, 2), "
            f"found {patches.shape} and {shapes.shape}."
        )
    packed = np.zeros((len(patches), most, patches.shape[2] + 2), np.float32)
    packed[..., -2:] = -1
    for index, (rows, columns) in enumerate(shapes.tolist()):
        count = rows * columns
        if not 0 < count <= min(most, patches.shape[1]):
            raise ConfigError(
                f"Image {index} has {rows}x{columns} patches, expected 1 to "
                f"{min(most, patches.shape[1])} in total; image_size= of from_preset raises the "
                "limit."
            )
        if mask is not None:
            present = np.asarray(mask)[index].astype(bool)
            if present.sum() != count or not present[:count].all():
                raise ConfigError(
                    f"Image {index} has {rows}x{columns} patches, but {present.sum()} true values "
                    f"in its mask; expected the first {count} to be true."
                )
        packed[index, :count, :-2] = patches[index, :count]
        packed[index, :count, -2:] = np.argwhere(np.ones((rows, columns)))
    return packed
