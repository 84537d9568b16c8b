"""Writes `tests/data/open_clip.npz`: pictures as open_clip's evaluation transform prepares them.

    python -m weights.test_data.open_clip

It needs open_clip_torch; the file is of release 3.3.0. The transform is without mean and std, so
that its values are pixels of 8 bits.
"""

from pathlib import Path

import numpy as np

from tests import torchvision_shim  # noqa: F401
from tests.images.pictures import THIRTY, picture

FILE = Path(__file__).parents[2] / "tests" / "data" / "open_clip.npz"
CASES = [
    (mode, interpolation)
    for mode in ("shortest", "squash")
    for interpolation in ("bicubic", "bilinear")
]
SIDE = 7


def main() -> None:
    """Writes an array (pictures, height, width, channels) for every case."""
    from open_clip.transform import image_transform  # type: ignore[import-not-found]
    from PIL import Image

    arrays = {}
    for mode, interpolation in CASES:
        options = {"resize_mode": mode, "interpolation": interpolation}
        prepare = image_transform(SIDE, False, mean=(0.0,) * 3, std=(1.0,) * 3, **options)
        prepared = [prepare(Image.fromarray(picture(sides))).numpy() for sides in THIRTY]
        pixels = np.rint(255 * np.stack(prepared)).astype("uint8")
        arrays[f"{mode}_{interpolation}"] = pixels.transpose(0, 2, 3, 1)
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
