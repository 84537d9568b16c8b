"""Conversions between values of patches and values of pixels."""

import numpy as np

from keras_vit.config import ViTConfig


def pixels_per_patch(config: ViTConfig) -> tuple[int, int]:
    """Returns height and width of a patch in pixels of the image, including a hybrid's stem."""
    halvings = config.resnet.halvings if config.resnet else 0
    high, wide = (side * 2**halvings for side in config.patch_size)
    return high, wide


def per_pixel(patches: np.ndarray, image_size: tuple[int, int], config: ViTConfig) -> np.ndarray:
    """Returns `(batch, height, width)`, in which each pixel has the value of its patch.

    Pixels at the right and lower edge that fill no patch are 0: the model does not read them.
    """
    high, wide = pixels_per_patch(config)
    maps = patches.repeat(high, axis=1).repeat(wide, axis=2)[:, : image_size[0], : image_size[1]]
    missing = [(0, side - seen) for side, seen in zip(image_size, maps.shape[1:], strict=True)]
    return np.pad(maps, [(0, 0), *missing])


def per_patch(maps: np.ndarray, grid: tuple[int, int], config: ViTConfig) -> np.ndarray:
    """Returns `(batch, rows, columns)`, the sums over the pixels of each patch."""
    sides = [n * p for n, p in zip(grid, pixels_per_patch(config), strict=True)]
    maps = maps[:, : sides[0], : sides[1]]
    missing = [(0, side - seen) for side, seen in zip(sides, maps.shape[1:], strict=True)]
    maps = np.pad(maps, [(0, 0), *missing])
    high, wide = pixels_per_patch(config)
    return maps.reshape(len(maps), grid[0], high, grid[1], wide).sum(axis=(2, 4))
