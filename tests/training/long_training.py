"""A training that tests kill; run again, it must end like an uninterrupted training.

    KERAS_BACKEND=jax python -m tests.training.long_training FOLDER [KILL]

KILL is `batch:N` (after the N-th batch of this process) or `write:N` (in the middle of
writing the N-th state). `weights/fuzz/kills.py` kills it at random moments.
"""

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.training import Resume
from tests.helpers import random_tiny

EPOCHS, STEPS = 6, 4


class Batches(keras.utils.PyDataset):
    """Batches of noise that are a pure function of epoch and index."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng((self.epoch, index))
        classes = rng.integers(0, 5, 8)
        images = rng.standard_normal((8, 16, 16, 3)) + classes[:, None, None, None]
        return images.astype("float32"), classes.astype("int32")

    def on_epoch_end(self) -> None:
        self.epoch += 1


Result = tuple[list[np.ndarray], dict]


def compile_alone() -> None:
    """Lets this process compile for itself, and quickly.

    Operations that come from a cache may differ in the last bit from those compiled here.
    """
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_disable_most_optimizations", True)
        jax.config.update("jax_enable_compilation_cache", False)


def train(folder: Path, callbacks: tuple = (), epochs: int = EPOCHS) -> Result:
    """Trains with dropout, momentum, averages, accumulation and EarlyStopping, all with a state.

    Returns:
        The weights and the history.
    """
    keras.utils.set_random_seed(0)
    model = random_tiny(dropout_rate=0.2, attention_dropout_rate=0.2, stochastic_depth_rate=0.2)
    steps = epochs * STEPS
    model.compile(
        keras.optimizers.SGD(
            keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=0.1, warmup_steps=3),
            momentum=0.9,
            global_clipnorm=1.0,
            use_ema=True,
            ema_momentum=0.9,
            gradient_accumulation_steps=3,  # does not divide the steps of an epoch
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    data = Batches()
    stop = keras.callbacks.EarlyStopping("loss", patience=epochs, restore_best_weights=True)
    resume = Resume(folder, data, [stop])
    history = model.fit(
        data,
        epochs=epochs,
        initial_epoch=resume.epoch,
        shuffle=False,
        verbose=0,
        callbacks=[stop, resume, *callbacks],
    )
    facts = {**history.history, "epoch": history.epoch, "best": float(stop.best)}
    return model.get_weights(), facts


class KillAtBatch(keras.callbacks.Callback):
    """Kills the process after a number of batches."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def kill_at_write(count: int) -> None:
    """Kills the process with half of the `count`-th state written."""
    import safetensors.numpy

    save_file = safetensors.numpy.save_file
    left = count

    def save_half(arrays: Any, path: Any, metadata: Any) -> None:
        nonlocal left
        save_file(arrays, path, metadata)
        left -= 1
        if left == 0:
            os.truncate(path, Path(path).stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    safetensors.numpy.save_file = save_half


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("kill", nargs="?")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    arguments = parser.parse_args()
    compile_alone()
    callbacks = []
    moment, _, count = (arguments.kill or "").partition(":")
    if moment == "batch":
        callbacks.append(KillAtBatch(int(count)))
    elif moment == "write":
        kill_at_write(int(count))
    save(arguments.folder, train(arguments.folder, tuple(callbacks), arguments.epochs))


if __name__ == "__main__":
    main()
