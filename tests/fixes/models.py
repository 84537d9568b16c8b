"""A small model, a model of plain Keras layers, and data that raise errors."""

import keras
import numpy as np

from keras_vit import VisionTransformer, ViTConfig

CONFIG = ViTConfig(
    image_size=8, patch_size=4, hidden_size=8, mlp_dim=16, num_heads=2, num_layers=1, num_classes=3
)
IMAGES = np.random.default_rng(0).standard_normal((16, 8, 8, 3)).astype("float32")
LABELS = np.arange(16) % 3
PICTURES = list(np.random.default_rng(2).integers(0, 256, (4, 8, 8, 3)).astype("uint8"))


def compiled(model, **arguments):
    """The model, ready for `fit` on IMAGES and LABELS."""
    optimizer = arguments.pop("optimizer", "sgd")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], **arguments)
    return model


def vit(**fields):
    """A compiled `VisionTransformer` whose head is not zero."""
    model = compiled(VisionTransformer(CONFIG, **fields))
    head = model.get_layer("head")
    head.set_weights([np.random.default_rng(1).standard_normal(w.shape) for w in head.weights])
    return model


def plain():
    """A compiled model of Keras's own classes."""
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
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
