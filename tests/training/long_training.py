"""A training that `weights/fuzz/kills.py` kills; it must end like an uninterrupted training."""

import json
from pathlib import Path

import keras
import numpy as np

from keras_vit.data import Views, from_arrays
from keras_vit.training import Resume, SelfSupervised
from tests.helpers import random_tiny
from tests.runs import times

EPOCHS, STEPS = times(3, 6), 4


Result = tuple[list[np.ndarray], dict]


def train(folder: Path, with_labels: bool = True) -> Result:
    """Trains with dropout, momentum, averages, accumulation and EarlyStopping, all with a state.

    Returns:
        The weights and the history.
    """
    keras.utils.set_random_seed(0)
    rates = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")
    fields = {} if with_labels else {"num_classes": 0, "image_size": (None, None)}
    model = encoder = random_tiny(**dict.fromkeys(rates, 0.2), **fields)
    if not with_labels:
        model = SelfSupervised(encoder, Views(16, 8), projector=(16, 8), directions=16)
    model.compile(
        keras.optimizers.SGD(
            keras.optimizers.schedules.CosineDecay(
                0.0, EPOCHS * STEPS, warmup_target=0.1, warmup_steps=3
            ),
            momentum=0.9,
            global_clipnorm=1.0,
            use_ema=True,
            ema_momentum=0.9,
            gradient_accumulation_steps=3,  # does not divide the steps of an epoch
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True) if with_labels else None,
        metrics=["accuracy"] if with_labels else None,
    )
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (8 * STEPS, 16, 16, 3)).astype("uint8")
    views = None if with_labels else model.views
    data = from_arrays(images, np.arange(8 * STEPS) % 5, encoder, 8, augmentation=views)
    stop = keras.callbacks.EarlyStopping("loss", patience=EPOCHS, restore_best_weights=True)
    resume = Resume(folder, data, [stop])
    history = model.fit(
        data,
        epochs=EPOCHS,
        initial_epoch=resume.epoch,
        shuffle=False,
        verbose=0,
        callbacks=[stop, resume],
    )
    facts = {**history.history, "epoch": history.epoch, "best": float(stop.best)}
    return model.get_weights(), facts


def save(folder: Path, result: Result) -> None:
    weights, history = result
    np.savez(folder / "weights.npz", **{str(k): w for k, w in enumerate(weights)})
    (folder / "history.json").write_text(json.dumps(history))


def load(folder: Path) -> Result:
    """The weights and history that a training in another process has saved."""
    with np.load(folder / "weights.npz") as file:
        weights = [file[str(k)] for k in range(len(file.files))]
    return weights, json.loads((folder / "history.json").read_text())


def compare(one: Result, other: Result) -> None:
    """Fails if weights or history differ in a bit."""
    assert one[1] == other[1]
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(a, b)
