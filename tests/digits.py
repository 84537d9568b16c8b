"""scikit-learn's handwritten digits as image files: real data that needs no download."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

LOOPS = {digit: "loop" if digit in (0, 6, 8, 9) else "open" for digit in range(10)}
"""A question that vit_digits was not trained on: does the digit have a loop?"""


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The split of `weights/train_digits.py`: images uint8 `(count, 8, 8, 1)`, and digits.

    Returns:
        1,437 training images, 360 test images, and the digit of each; vit_digits has
        never seen the test images.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = np.round(data.images * (255 / 16)).astype("uint8")[..., None]
    split = train_test_split(
        images, data.target, test_size=360, stratify=data.target, random_state=0
    )
    return tuple(split)


def encoded(array: np.ndarray, format: str = "PNG") -> bytes:
    """An array of pixels as the bytes of an image file."""
    file = io.BytesIO()
    Image.fromarray(array).save(file, format)
    return file.getvalue()


def write_folders(
    folder: Path,
    question: Callable[[int], str] = str,
    *,
    train: int | None = None,
    test: int | None = None,
    size: int = 32,
) -> tuple[Path, Path]:
    """Writes PNG files `train/<class>/0000.png` and `test/<class>/0000.png`.

    Args:
        folder: where to write.
        question: digit -> name of its class: `str`, or `LOOPS.get`.
        train, test: images of each part, the first ones; None for all 1,437 and 360.
        size: pixels of each side; the 8x8 images are enlarged.

    Returns:
        The two folders.
    """
    train_images, test_images, train_digits, test_digits = digits()
    parts = (
        (folder / "train", train_images[:train], train_digits),
        (folder / "test", test_images[:test], test_digits),
    )
    for part, images, classes in parts:
        for k, (image, digit) in enumerate(zip(images, classes, strict=False)):
            path = part / str(question(int(digit))) / f"{k:04d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(image[..., 0])
            picture.resize((size, size), Image.Resampling.BILINEAR).save(path)
    return parts[0][0], parts[1][0]
