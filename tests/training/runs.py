"""A small training that may be resumed."""

from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.training import Resume


def small_model(learning_rate: float = 0.1) -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")])
    model.compile(keras.optimizers.SGD(learning_rate, momentum=0.9), "mse")
    return model


def fit(
    model: keras.Model, folder: Path, epochs: int = 2, callbacks: tuple = (), data: Any = None
) -> dict:
    """The history of a training whose state is kept in the folder."""
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((8, 2)), rng.standard_normal((8, 1))
    resume = Resume(folder, data, callbacks)
    options = {"initial_epoch": resume.epoch, "batch_size": 4, "shuffle": False, "verbose": 0}
    return model.fit(*arrays, epochs=epochs, callbacks=[resume, *callbacks], **options).history
