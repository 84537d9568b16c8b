"""`embed` writes the features of many image files to one file, which is complete or absent."""

import json
import os

import numpy as np
import pytest

from keras_vit import embed
from keras_vit.errors import ConfigError
from keras_vit.evaluation import features
from tests.helpers import random_tiny

DAMAGED = (1, *range(8, 16))


@pytest.fixture
def paths(digits_folder):
    """Twenty-three image files; file 1 and all eight files of the second batch are damaged, and
    the name of the first is not UTF-8."""
    files = sorted(digits_folder.rglob("*.png"))
    files[0] = files[0].rename(files[0].with_name(os.fsdecode(b"b\xe4r.png")))
    for k in DAMAGED:
        files[k].write_bytes(files[k].read_bytes()[:50])
    return files


@pytest.fixture
def out(tmp_path):
    """An empty folder."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def run(model, paths, out, **options):
    unreadable = []
    result = embed(
        model, paths, out, batch_size=8, on_error=lambda *why: unreadable.append(why), **options
    )
    assert result.unreadable == [name for name, _ in unreadable]
    assert all("not a readable image" in str(reason) for _, reason in unreadable)
    return result


def test_the_file_holds_the_features_of_the_readable_images(model, paths, out, bar):
    """Row k is the output of `features` for readable image k; damaged images are listed."""
    readable = [path for k, path in enumerate(paths) if k not in DAMAGED]
    expected = features(model, readable, batch_size=8).values
    result = run(model, paths, out / "x.npy", progress=True)
    assert (result.num_images, len(result.unreadable), sum(bar.counts)) == (14, 9, 23)
    np.testing.assert_allclose(np.load(out / "x.npy"), expected, rtol=0, atol=1e-5)
    about = json.loads((out / "x.npy.json").read_text())
    assert about["paths"] == list(map(str, readable))
    assert about["unreadable"] == result.unreadable == [str(paths[k]) for k in DAMAGED]
    assert sorted(p.name for p in out.iterdir()) == ["x.npy", "x.npy.json"]


def test_the_same_call_resumes_and_another_is_refused(model, paths, out, bar):
    """With other weights or files it neither resumes nor overwrites."""
    whole = run(model, paths, out / "whole.npy")
    seen = bar.interrupt(run, model, paths, out / "x.npy")
    assert not (out / "x.npy").exists()
    for other, files, words in (
        (model, paths[:-1], "another run, which differs in files"),
        (random_tiny(num_classes=3), paths, "which differs in config, weights"),
    ):
        with pytest.raises(ConfigError, match=words):
            run(other, files, out / "x.npy")
    assert run(model, paths, out / "x.npy", progress=True) == whole
    assert (bar.counts[0], sum(bar.counts)) == (seen, 23)
    assert (out / "x.npy").read_bytes() == (out / "whole.npy").read_bytes()
    with pytest.raises(ConfigError, match="exists. Remove it"):
        run(model, paths, out / "x.npy")
