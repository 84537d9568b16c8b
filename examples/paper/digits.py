"""What the examples of appendix D share: digits of 8 by 8 pixels, a head, and a training.

python examples/paper/digits.py
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

from keras_vit import layers

SIDE = 4
"""Rows and columns of patches of 2 by 2 pixels."""

_digits = load_digits()
IMAGES = (_digits.images[..., None] / 8 - 1).astype("float32")
TEST = 1400  # the images from here on are to measure on


def score(encoder, steps, optimizer=None):
    """Trains patch embedding, encoder and head; returns the accuracy on the test images."""
    keras.utils.set_random_seed(0)
    images = keras.Input((8, 8, 1))
    tokens = layers.PatchEmbedding(32, 2)(images)
    model = keras.Model(images, keras.layers.Dense(10)(encoder(tokens)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    rows = np.arange(32 * steps) % TEST
    model.fit(IMAGES[rows], _digits.target[rows], batch_size=32, verbose=0)
    return model.evaluate(IMAGES[TEST:], _digits.target[TEST:], verbose=0)[1]


if __name__ == "__main__":
    print(f"a linear model: {score(keras.layers.Flatten(), 100):.1%}")
