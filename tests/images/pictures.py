"""Pictures of thirty sizes, made from formulas: odd and even, long, and smaller than a crop."""

import numpy as np

THIRTY = [(427, 640), (500, 741), (333, 250), (321, 214), (225, 224), (224, 225), (123, 501)]
THIRTY += [(31, 40), (41, 30), (7, 9), (100, 101), (255, 256), (157, 311), (451, 150), (97, 301)]
THIRTY += [(1, 50), (50, 1), (1, 1)] + [(2 * k + 51, 3 * k + 100) for k in range(0, 48, 4)]
"""Heights and widths."""


def picture(sides: tuple[int, int]) -> np.ndarray:
    """A picture with ramps, edges and a fine texture, uint8 (height, width, 3)."""
    rows, columns = np.mgrid[: sides[0], : sides[1]]
    ramps = [255 * rows // sides[0], 255 * columns // sides[1], 3 * (rows + 2 * columns) % 256]
    texture = (rows * 7919 + columns * 104729) % 61 * 3 - 90
    return np.clip(np.stack(ramps, -1) + texture[..., None], 0, 255).astype("uint8")


PHOTO = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype="uint8")
"""Noise."""
SCALED = (PHOTO.astype("float32") - 127.5) / 127.5
"""PHOTO in [-1, 1]."""
