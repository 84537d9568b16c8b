"""A small model, a model of plain Keras layers, and data that raise errors."""

import keras
import numpy as np

from tests.helpers import random_tiny
from tests.plain import normal

IMAGES, LABELS = normal(16, 16, 16, 3), np.arange(16) % 5
PICTURES = list(np.random.default_rng(2).integers(0, 256, (4, 16, 16, 3)).astype("uint8"))


def compiled(model):
    """The model, ready for `fit` on IMAGES and LABELS."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    return model


def vit(**fields):
    """A compiled `VisionTransformer` with random weights."""
    return compiled(random_tiny(**fields))


def plain():
    """A compiled model of Keras's own classes."""
    layers = [keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(5)]
    return compiled(keras.Sequential(layers))


class Batches(keras.utils.PyDataset):
    """Batches of four images; the batch `fails_at` raises an error."""

    def __init__(self, fails_at, error=OSError):
        super().__init__()
        self._fails_at = fails_at
        self._error = error

    def __len__(self):
        return len(IMAGES) // 4

    def __getitem__(self, index):
        if index == self._fails_at:
            raise self._error("the disk is gone")
        part = slice(4 * index, 4 * index + 4)
        return IMAGES[part], LABELS[part]
