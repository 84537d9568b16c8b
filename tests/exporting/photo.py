"""A picture for the tests of exports."""

import numpy as np
from PIL import Image


def make_photo(sides, channels):
    """A picture with areas, edges and noise, uint8 `(height, width, channels)`."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (6, 5, channels), dtype=np.uint8)
    parts = [
        np.asarray(Image.fromarray(coarse[..., c]).resize(sides[::-1], Image.Resampling.BICUBIC))
        for c in range(channels)
    ]
    noise = rng.normal(0, 6, (*sides, channels))
    return np.clip(np.stack(parts, axis=-1) + noise, 0, 255).astype(np.uint8)
