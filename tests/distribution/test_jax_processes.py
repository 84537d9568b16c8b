"""Two processes of JAX: equal to one process, in training, prediction, resuming and saving."""

import keras
import pytest

from tests.distribution.programs import findings
from tests.thorough import THOROUGH

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="keras.distribution is for JAX alone."
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What each of two processes has found."""
    return findings("tests.distribution.in_jax_processes", tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("way", ["data", "fully sharded", "tensor"])
def test_two_processes_train_as_one(reports, way):
    """Each reads its share of the batches; with one copy of the model, both read all images."""
    count = 1 if way == "tensor" else 2
    assert [report["shards"][way] for report in reports] == [[k % count, count] for k in (0, 1)]
    for report in reports:
        assert max(report["ways"][way]) < 1e-5


@pytest.mark.parametrize("count", [1, 9] if THOROUGH else [9])
def test_any_number_of_images_gives_every_process_what_one_process_gets(reports, count):
    """All public functions that run a model; weights are sharded over both processes."""
    for report in reports:
        assert report[f"{count} images"] < 1e-5


def test_an_interrupted_training_is_resumed_bit_by_bit(reports):
    """The first process writes the variables that both hold parts of."""
    for report in reports:
        assert report["resumed"] == 0
        assert report["files"] == ["state.safetensors"]


def test_a_training_of_two_processes_is_resumed_by_one(reports):
    """Only the rounding differs."""
    assert reports[0]["resumed by one"] < 1e-5


def test_a_sharded_model_is_saved_whole(reports):
    """Process 0 writes the preset, and the other waits for it."""
    for report in reports:
        assert report["preset"] < 1e-6


def test_all_processes_learn_that_the_first_cannot_write(reports):
    """The second process names the place, too."""
    preset, run = reports[0]["unwritable"]
    assert "cannot be written" in preset
    assert "cannot be written" in run
    for sentence in reports[1]["unwritable"]:
        assert "process 0 could not write" in sentence
