"""The VTAB example scores the prepared data sets on the benchmark's splits and prints a table."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.data.test_tfds import prepare
from tests.digits import digits
from tests.helpers import tiny

FOLDER = Path(__file__).parents[2] / "examples" / "paper"


@pytest.fixture
def vtab(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    yield runpy.run_path(str(FOLDER / "d10_vtab.py"))
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
    others = "train[1800:2000]"
    expected = [("train[:800]", 800), (others, 200)]
    if not tune:
        expected = [(f"train[:800]+{others}", 1000), ("test", 20)]
    assert seen == expected


def test_computed_labels_are_those_of_task_adaptation(vtab):
    """As in google-research/task_adaptation, at both sides of every limit."""
    tasks = vtab["TASKS"]

    def car(*distances, kind=0):
        places = np.array([[0, 0, distance] for distance in distances], "float32")
        return {"objects": {"type": np.full(len(places), kind), "location": places.reshape(-1, 3)}}

    nearest_car = tasks["KITTI-Dist"][2]
    labels = [nearest_car(car(distance)) for distance in (7.9, 8.1, 19.9, 20.1, 500)]
    assert labels == [0, 1, 1, 2, 2]
    assert [nearest_car(car()), nearest_car(car(5, kind=3)), nearest_car(car(30, 5))] == [3, 3, 0]

    def objects(*distances):
        return {"objects": {"pixel_coords": [[0, 0, d] for d in distances], "size": distances}}

    nearest = tasks["Clevr-Dist"][2]
    labels = [nearest(objects(11, d)) for d in (7.9, 8.1, 8.6, 9.1, 9.6)]
    assert labels == [0, 1, 2, 3, 4]
    assert nearest(objects(10.5)) == 5
    assert [tasks["Clevr-Count"][2](objects(*range(n))) for n in (3, 10)] == [0, 7]
    places = [tasks["dSpr-Loc"][2]({"label_x_position": k}) for k in range(32)]
    turns = [tasks["dSpr-Ori"][2]({"label_orientation": k}) for k in range(40)]
    assert places == [k // 2 for k in range(32)]
    assert turns == [int(k // 2.5) for k in range(40)]
    assert len(tasks) == 19
