"""scikit-learn's handwritten digits, which the command `keras-vit demo` uses and writes."""

from pathlib import Path

import numpy as np
from PIL import Image

from keras_vit.errors import ConfigError
from keras_vit.support.extras import import_extra
from keras_vit.support.files import replace_folder


def load_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns training and test images, and the digits in them.

    They are split as `weights/train_digits.py` does, so vit_digits has not seen the test images.

    Returns:
        Images, uint8 of shape `(1437, 8, 8, 1)` and `(360, 8, 8, 1)`, and integers from 0 to 9.
    """
    data = import_extra("sklearn.datasets", "demo", "The demo").load_digits()
    images = np.round(data.images * (255 / 16)).astype("uint8")[..., None]
    split = import_extra("sklearn.model_selection", "demo", "The demo").train_test_split
    return tuple(split(images, data.target, test_size=360, stratify=data.target, random_state=0))


def write_digits(folder: Path) -> str:
    """Writes the digits as PNG files such as `train/odd/0000.png` into a new folder.

    Returns:
        What was written, in words.

    Raises:
        ConfigError: scikit-learn is not installed, or `folder` has contents.
    """
    train, test, train_digits, test_digits = load_digits()
    with replace_folder(folder, (), ConfigError) as new:
        for part, images, digits in (("train", train, train_digits), ("test", test, test_digits)):
            for name in ("even", "odd"):
                (new / part / name).mkdir(parents=True)
            for k, (image, digit) in enumerate(zip(images, digits, strict=True)):
                picture = Image.fromarray(image[..., 0]).resize((64, 64), Image.Resampling.BICUBIC)
                picture.save(new / part / ("even", "odd")[digit % 2] / f"{k:04}.png")
    return f"{folder}: {len(train)} images in train, {len(test)} in test; classes even and odd"
