"""The VTAB example scores the prepared data sets on the benchmark's splits and prints a table."""

import sys

import numpy as np
import pytest

from tests.data.test_tfds import prepare
from tests.digits import digits
from tests.examples import FOLDER, load
from tests.helpers import tiny


@pytest.fixture
def vtab(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER / "paper")
    yield load("paper/d10_vtab.py")
    sys.modules.pop("vtab_tasks", None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with digits under the name of cifar100."""
    folder = tmp_path_factory.mktemp("tfds")
    train, test, train_digits, test_digits = digits()
    chosen = np.arange(2000) % len(train)
    prepare(
        folder,
        "array_record",
        name="cifar100",
        train=zip(train[chosen], train_digits[chosen].tolist(), strict=True),
        test=zip(test[:20], test_digits[:20].tolist(), strict=True),
    )
    return folder


@pytest.mark.parametrize("tune", [False, True])
def test_prepared_data_sets_are_scored_and_missing_ones_are_named(vtab, folder, tmp_path, tune):
    """800 images train and 200 score when tuning; else 1,000 train and the test images score."""
    tiny(channels=1).save_to_preset(tmp_path / "preset")
    seen, from_tfds = [], vtab["from_tfds"]

    def reading(builder, model, *args, **named):
        data = from_tfds(builder, model, *args, **named)
        seen.append((named["split"], data.num_images))
        return data

    vtab["score"].__globals__["from_tfds"] = reading
    setting = {"steps": 2, "batch_size": 8, "image_size": 16, "tune": tune}
    lines = vtab["table"](folder, tmp_path / "preset", **setting).splitlines()
    assert lines[2].startswith("| CIFAR-100 |") and lines[2].endswith("% |")
    assert sum("not prepared" in line for line in lines) == 18
    assert (
        seen
        == [
            [("train[:800]+train[1800:2000]", 1000), ("test", 20)],
            [("train[:800]", 800), ("train[1800:2000]", 200)],
        ][tune]
    )


def test_computed_labels_are_those_of_task_adaptation(vtab):
    """As in google-research/task_adaptation, at both sides of every limit."""
    label = {name: task[2] for name, task in vtab["TASKS"].items() if len(task) > 2}
    assert len(vtab["TASKS"]) == 19

    def car(*distances, kind=0):
        places = np.array([[0, 0, distance] for distance in distances], "float32")
        return {"objects": {"type": np.full(len(places), kind), "location": places.reshape(-1, 3)}}

    cars = [car(7.9), car(8.1), car(19.9), car(20.1), car(500), car(), car(5, kind=3), car(30, 5)]
    assert [*map(label["KITTI-Dist"], cars)] == [0, 1, 1, 2, 2, 3, 3, 0]

    def objects(*distances):
        return {"objects": {"pixel_coords": [[0, 0, d] for d in distances], "size": distances}}

    near = [objects(11, d) for d in (7.9, 8.1, 8.6, 9.1, 9.6)]
    assert [*map(label["Clevr-Dist"], [*near, objects(10.5)])] == [0, 1, 2, 3, 4, 5]
    assert [label["Clevr-Count"](objects(*range(n))) for n in (3, 10)] == [0, 7]
    places = [label["dSpr-Loc"]({"label_x_position": k}) for k in range(32)]
    turns = [label["dSpr-Ori"]({"label_orientation": k}) for k in range(40)]
    assert places == [k // 2 for k in range(32)]
    assert turns == [int(k // 2.5) for k in range(40)]
