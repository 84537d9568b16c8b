"""The VTAB example scores the prepared data sets on the benchmark's splits and prints a table."""

import numpy as np

from tests.data.test_tfds import prepare
from tests.digits import digits
from tests.examples import FOLDER, load
from tests.helpers import tiny


def test_prepared_data_sets_are_scored_and_missing_ones_are_named(tmp_path, monkeypatch):
    """Digits under the name of cifar100: 800 images train and 200 score when tuning; else 1,000
    train and the test images score."""
    monkeypatch.syspath_prepend(FOLDER / "paper")
    vtab, (train, test, train_digits, test_digits) = load("paper/d10_vtab.py"), digits()
    chosen = np.arange(2000) % len(train)
    parts = {"train": (train[chosen], train_digits[chosen]), "test": (test[:20], test_digits[:20])}
    splits = {name: zip(x, y.tolist(), strict=True) for name, (x, y) in parts.items()}
    prepare(tmp_path, "array_record", name="cifar100", **splits)
    tiny(channels=1).save_to_preset(tmp_path / "preset")
    seen, from_tfds = [], vtab["from_tfds"]

    def reading(builder, model, *args, **named):
        data = from_tfds(builder, model, *args, **named)
        seen.append((named["split"], data.num_images))
        return data

    vtab["score"].__globals__["from_tfds"] = reading
    for tune, wanted in (
        (False, [("train[:800]+train[1800:2000]", 1000), ("test", 20)]),
        (True, [("train[:800]", 800), ("train[1800:2000]", 200)]),
    ):
        setting = {"steps": 2, "batch_size": 8, "image_size": 16, "tune": tune}
        lines = vtab["table"](tmp_path, tmp_path / "preset", **setting).splitlines()
        assert lines[2].startswith("| CIFAR-100 |") and lines[2].endswith("% |")
        assert sum("not prepared" in line for line in lines) == 18
        assert seen == wanted
        seen.clear()
