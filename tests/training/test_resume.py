"""A training that is killed and resumed ends like an uninterrupted one."""

import random
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.errors import CheckpointError
from keras_vit.training import Resume
from keras_vit.training.resume import random_states, set_random_states
from tests.helpers import tiny
from tests.runs import times
from tests.training.runs import fit, small_model

pytestmark = pytest.mark.every_backend

ROOT = Path(__file__).parents[2]


@pytest.mark.on_backend("torch")
def test_a_killed_training_ends_like_the_uninterrupted_one(nursery):
    """Killed at random moments; weights and history are equal bit by bit."""
    options = ("--count", times(1, 50), "--only", "training")
    process = nursery.run("-m", "weights.fuzz.kills", *options, cwd=ROOT)
    assert process.returncode == 0, process.stderr
    assert " whole" in process.stdout


def test_a_finished_training_is_not_continued(tmp_path):
    """A second run returns the same history and weights, also after one that was refused."""
    model = small_model()
    history = fit(model, tmp_path)
    with pytest.raises(CheckpointError):
        fit(small_model(0.2), tmp_path)
    again = small_model()
    assert fit(again, tmp_path) == history
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(fit(again, tmp_path / "other")["loss"]) == 2
    state = tmp_path / "state.safetensors"
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"state\.safetensors: not a complete state"):
        fit(again, tmp_path)


@pytest.mark.on_backend("torch")
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
    histories = []
    for _ in range(2):
        stop = keras.callbacks.EarlyStopping("loss", patience=0, mode="max")
        histories.append(fit(small_model(), tmp_path, epochs=5, callbacks=(stop,)))
    assert len(histories[0]["loss"]) < 5
    assert histories[0] == histories[1]


@pytest.mark.parametrize("draw", [np.random.normal, random.random, lambda: random.gauss(0, 1)])
def test_global_random_states_are_restored(draw):
    """After the states are restored, the same numbers are drawn."""
    draw()
    states = random_states()
    drawn = [draw() for _ in range(3)]
    set_random_states(states)
    assert [draw() for _ in range(3)] == drawn
