"""A training that is killed and resumed ends like an uninterrupted one."""

import random
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.data import AUGREG
from keras_vit.errors import CheckpointError, WriteError
from keras_vit.training import Resume
from keras_vit.training.resume import random_states, read_state, set_random_states, write_state
from tests.disk import full_disk
from tests.helpers import tiny
from tests.runs import THOROUGH
from tests.training import long_training

pytestmark = pytest.mark.every_backend

ROOT = Path(__file__).parents[2]
EPOCHS = 3


@pytest.mark.skipif(
    not THOROUGH and keras.backend.backend() != "torch",
    reason="half a minute; test_training.py resumes trainings on every backend",
)
def test_a_killed_training_ends_like_the_uninterrupted_one(tmp_path, nursery):
    """Killed within an epoch and within a write; weights and history are equal bit by bit."""

    def train(folder: Path, *moment: str) -> None:
        """Trains in a separate process until the training ends or kills the process."""
        program = ("-m", "tests.training.long_training", "--epochs", EPOCHS)
        child = nursery.run(*program, folder, *moment, cwd=ROOT)
        assert child.returncode == (-signal.SIGKILL if moment else 0), child.stderr

    whole, broken = tmp_path / "unbroken", tmp_path / "killed"
    train(whole)
    for moment in ("batch:6", "write:2"):
        train(broken, moment)
    assert list(broken.glob(".state*")), "no write was cut short"
    train(broken)
    assert not list(broken.glob(".state*"))
    unbroken, resumed = long_training.load(whole), long_training.load(broken)
    assert unbroken[1]["epoch"] == list(range(EPOCHS))
    long_training.compare(unbroken, resumed)


def small_model(learning_rate: float = 0.1) -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")])
    model.compile(keras.optimizers.SGD(learning_rate, momentum=0.9), "mse")
    return model


def fit(
    model: keras.Model, folder: Path, epochs: int = 2, callbacks: tuple = (), data: Any = None
) -> dict:
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((8, 2)), rng.standard_normal((8, 1))
    resume = Resume(folder, data, callbacks)
    options = {"initial_epoch": resume.epoch, "batch_size": 4, "shuffle": False, "verbose": 0}
    return model.fit(*arrays, epochs=epochs, callbacks=[resume, *callbacks], **options).history


def test_a_finished_training_is_not_continued(tmp_path):
    """A second run returns the same history and weights; a new folder starts at epoch 0."""
    model = small_model()
    history = fit(model, tmp_path)
    again = small_model()
    assert fit(again, tmp_path) == history
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(fit(again, tmp_path / "other")["loss"]) == 2


def test_a_model_that_is_built_again_continues_its_training(tmp_path):
    """Though its default name counts the models of the process."""
    arrays = np.ones((4, 16, 16, 3), "float32"), np.zeros(4)
    for _ in range(2):
        model = tiny()
        model.compile("sgd", "auto")
        resume = Resume(tmp_path, None)
        model.fit(*arrays, initial_epoch=resume.epoch, callbacks=[resume], verbose=0)
    assert resume.epoch == 1


def test_a_training_that_stopped_early_is_not_continued(tmp_path):
    """A second run returns the history of the run that EarlyStopping has ended."""
    stop = keras.callbacks.EarlyStopping("loss", patience=0, mode="max")
    history = fit(small_model(), tmp_path, epochs=5, callbacks=(stop,))
    assert len(history["loss"]) < 5
    stop = keras.callbacks.EarlyStopping("loss", patience=0, mode="max")
    assert fit(small_model(), tmp_path, epochs=5, callbacks=(stop,)) == history


def test_the_state_of_another_training_is_refused(tmp_path):
    """The message names the setting that differs, with both values; the file is unchanged."""
    fit(small_model(), tmp_path)
    before = (tmp_path / "state.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=r"learning_rate: begun with 0\.1\d*, now 0\.2"):
        fit(small_model(0.2), tmp_path)
    with pytest.raises(CheckpointError, match=r"epochs: begun with 2, now 3"):
        fit(small_model(), tmp_path, epochs=3)
    assert (tmp_path / "state.safetensors").read_bytes() == before


def test_a_fit_that_begins_at_another_epoch_is_refused(tmp_path):
    """The message names the argument that is missing."""
    fit(small_model(), tmp_path)
    with pytest.raises(CheckpointError, match="state is that of epoch 2.*initial_epoch=resume"):
        small_model().fit(np.ones((8, 2)), np.ones(8), epochs=2, batch_size=4, verbose=0,
                          callbacks=[Resume(tmp_path, None)])  # fmt: skip


def test_a_state_of_another_augmentation_is_refused(tmp_path):
    """The message names the field of the augmentation that differs."""
    light, strong = (
        SimpleNamespace(epoch=0, augmentation=AUGREG[name]) for name in ("light1", "strong1")
    )
    fit(small_model(), tmp_path, data=light)
    with pytest.raises(CheckpointError, match=r"augmentation\.mixup: begun with 0\.0, now 0\.5"):
        fit(small_model(), tmp_path, data=strong)


def test_a_damaged_or_foreign_state_file_is_refused(tmp_path):
    """The message names the file."""
    fit(small_model(), tmp_path)
    path = tmp_path / "state.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"state\.safetensors: not a whole state"):
        fit(small_model(), tmp_path)
    path.write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(CheckpointError, match="not a whole state"):
        fit(small_model(), tmp_path)


@pytest.mark.parametrize("draw", [np.random.normal, random.random, lambda: random.gauss(0, 1)])
def test_global_random_states_are_restored(draw):
    """After the states are restored, the same numbers are drawn."""
    draw()
    states = random_states()
    drawn = [draw() for _ in range(3)]
    set_random_states(states)
    assert [draw() for _ in range(3)] == drawn


def test_a_full_disk_keeps_the_state_before(tmp_path):
    """The error names the file; no temporary file is left."""
    path = tmp_path / "state.safetensors"
    write_state(path, {"a": np.zeros(4, "float32")}, {"epoch": 1})
    with (
        full_disk() as fill,
        pytest.raises(WriteError, match="state.safetensors: cannot be written"),
    ):
        fill(50_000)
        write_state(path, {"a": np.zeros(40_000, "float32")}, {"epoch": 2})
    assert read_state(path)[1]["epoch"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]
