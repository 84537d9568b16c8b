"""What three examples of the gallery claim: distillation, numbers from a CSV, other channels."""

import runpy
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Runs a program of the gallery in a folder of its own; returns its names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return lambda name: runpy.run_path(str(FOLDER / name))


def test_a_distilled_student_beats_the_same_student_with_fresh_weights(program):
    """By far: 96.4 % of the nearest neighbours were right, of 42.5 %."""
    actual = program("15_own_small_encoder.py")
    scores = actual["scores"]
    assert scores["student, distilled"] > scores["student, fresh weights"] + 0.4
    sizes = [actual[name].count_params() for name in ("student", "teacher")]
    assert sizes[0] < 0.2 * sizes[1]


def test_a_model_of_numbers_is_better_than_the_mean_and_fine_tuning_than_ridge(program):
    """On images that neither has seen; a prediction has both columns of the CSV."""
    actual = program("16_numbers_from_a_csv.py")
    ridge, tuned = actual["scores"].values()
    assert 0.7 < ridge.r2 < tuned.r2
    assert actual["tuned"].class_names == ("length", "width")
    error = np.abs(actual["predicted"] - actual["data"].labels).mean()
    assert error == pytest.approx(tuned.mean_absolute_error, rel=1e-4)


def test_weights_of_other_channels_pay_in_one_task_and_not_in_the_other(program):
    """A repeated kernel keeps its sum over the channels; zeros leave the new channels out."""
    actual = program("17_other_channels.py")
    fresh, zeros, repeated = (np.array(actual["scores"][k]) for k in ("fresh", "zeros", "repeated"))
    assert min(zeros[0], repeated[0]) > fresh[0] + 0.3
    assert max(zeros[1], repeated[1]) < fresh[1] + 0.05
    kernel = np.random.default_rng(0).normal(size=(4, 4, 3, 8))
    five = actual["with_channels"](kernel, "repeated")
    np.testing.assert_allclose(five[:, :, 3:], five[:, :, :2])
    np.testing.assert_allclose(five[:, :, :3], kernel * 3 / 5)
    padded = actual["with_channels"](kernel, "zeros")
    np.testing.assert_array_equal(padded[:, :, :3], kernel)
    assert not padded[:, :, 3:].any()
