"""Generated photographs: JPEG files of the size of ImageNet's, in a folder per class."""

from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (500, 375)
"""Width and height, about the mean of ImageNet's images."""


def write(folder: Path, count: int, classes: int = 10) -> list[Path]:
    """Writes `count` JPEG files of quality 90, about 100 kB each, and returns their paths.

    An image is smooth noise of several scales, so that its file is neither as small as that of a
    plain area nor as large as that of white noise.
    """
    rng = np.random.default_rng(0)
    files = []
    for k in range(count):
        pixels = np.zeros((*SIZE[::-1], 3), np.float32)
        for scale, weight in ((8, 90), (32, 60), (128, 35), (375, 12)):
            coarse = rng.integers(0, 256, (scale, scale, 3), dtype="uint8")
            smooth = Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC)
            pixels += weight / 128 * (np.asarray(smooth, np.float32) - 128)
        file = folder / f"{k % classes:02d}" / f"{k:05d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(pixels + 128, 0, 255).astype("uint8")).save(file, quality=90)
        files.append(file)
    return files
