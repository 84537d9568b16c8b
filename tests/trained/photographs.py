"""The trained encoder, and photographs of scikit-image and scikit-learn to look at."""

import os
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(os.environ.get("KERAS_VIT_TRAINED", ".venv/trained"))
ENCODER = FOLDER / "encoder"

needs_encoder = pytest.mark.skipif(
    not (ENCODER / "model.safetensors").is_file(),
    reason=f"{ENCODER} is absent: python -m weights.trained {FOLDER} makes it, or the variable "
    "KERAS_VIT_TRAINED names its folder",
)
COLOURED = ("astronaut", "chelsea", "coffee", "rocket", "retina", "immunohistochemistry")
GREY = ("camera", "coins", "moon", "brick", "grass", "gravel")


def photographs() -> dict[str, np.ndarray]:
    """Returns fourteen photographs, uint8 `(height, width, 3)`."""
    import skimage.data
    from sklearn.datasets import load_sample_images

    found = {name: getattr(skimage.data, name)() for name in COLOURED}
    found |= {name: getattr(skimage.data, name)()[..., None].repeat(3, -1) for name in GREY}
    return {**found, **dict(zip(("temple", "flower"), load_sample_images().images, strict=True))}


def shapes() -> list[np.ndarray]:
    """Returns thirty photographs and crops: whole, a tall and a wide part of ten photographs."""
    images = list(photographs().values())[:8] + list(photographs().values())[-2:]
    parts = []
    for image in images:
        height, width = image.shape[:2]
        parts += [image, image[:, : width // 3], image[-height // 3 :]]
    return parts


def crops(side: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns `count` random squares of each photograph, and the number of its photograph."""
    rng, squares, labels = np.random.default_rng(0), [], []
    for k, image in enumerate(photographs().values()):
        tops, lefts = (rng.integers(0, size - side, count) for size in image.shape[:2])
        squares += [image[y : y + side, x : x + side] for y, x in zip(tops, lefts, strict=True)]
        labels += [k] * count
    return np.stack(squares), np.array(labels)
