"""`embed` writes the features of many image files to one file, which is complete or absent."""

import json
import os
import shutil

import numpy as np
import pytest

from keras_vit import embed
from keras_vit.errors import ConfigError, WriteError
from keras_vit.evaluation import features, parts
from tests.disk import full_disk
from tests.helpers import random_tiny

DAMAGED = (1, *range(8, 16))


@pytest.fixture
def paths(digits_folder):
    """Twenty-three image files; file 1 and all eight files of the second batch are damaged."""
    files = sorted(digits_folder.rglob("*.png"))
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


def test_the_file_holds_the_features_of_the_readable_images(grey, paths, out, bar):
    """Row k is the output of `features` for readable image k; damaged images are listed."""
    readable = [path for k, path in enumerate(paths) if k not in DAMAGED]
    expected = features(grey, readable, batch_size=8).values
    result = run(grey, paths, out / "x.npy", progress=True)
    assert (result.num_images, len(result.unreadable), sum(bar.counts)) == (14, 9, 23)
    np.testing.assert_allclose(np.load(out / "x.npy"), expected, rtol=0, atol=1e-5)
    about = json.loads((out / "x.npy.json").read_text())
    assert about["paths"] == list(map(str, readable))
    assert about["unreadable"] == result.unreadable == [str(paths[k]) for k in DAMAGED]
    assert sorted(p.name for p in out.iterdir()) == ["x.npy", "x.npy.json"]


def test_another_run_in_the_same_place_is_refused(grey, paths, out, bar):
    """The same call resumes; with other weights or files it neither resumes nor overwrites."""

    def stop(images):
        if len(bar.counts) == 2:
            raise KeyboardInterrupt

    whole = run(grey, paths, out / "whole.npy")
    bar.then = stop
    with pytest.raises(KeyboardInterrupt):
        run(grey, paths, out / "x.npy", progress=True)
    assert not (out / "x.npy").exists()
    with pytest.raises(ConfigError, match="another run, which differs in files"):
        run(grey, paths[:-1], out / "x.npy")
    with pytest.raises(ConfigError, match="another run, which differs in config, weights"):
        run(random_tiny(channels=1, num_classes=3), paths, out / "x.npy")
    seen = sum(bar.counts)
    bar.counts, bar.then = [], lambda images: None
    assert run(grey, paths, out / "x.npy", progress=True) == whole
    assert (bar.counts[0], sum(bar.counts)) == (seen, 23)
    assert (out / "x.npy").read_bytes() == (out / "whole.npy").read_bytes()
    with pytest.raises(ConfigError, match="exists. Remove it"):
        run(grey, paths, out / "x.npy")


def test_bad_arguments_are_refused_and_no_file_is_left(grey, paths, out):
    """An unknown suffix or layer, a batch size of 0, no image, or no readable image."""
    for arguments, options, message in (
        ((paths, "x.csv"), {}, "ends in .npy"),
        ((paths, "x.npy"), {"stage": "block_9"}, "Did you mean 'block_0'"),
        (([], "x.npy"), {}, "No image was given"),
        ((paths[8:16], "x.npy"), {}, "None of 8 images"),
        ((paths, "x.npy"), {"on_error": "raise"}, "not a readable image"),
    ):
        images, name = arguments
        with pytest.raises(ConfigError, match=message):
            embed(grey, images, out / name, **{"on_error": lambda *_: None, **options})
    with pytest.raises(ConfigError, match="batch_size must be a positive int, found 0"):
        embed(grey, paths, out / "x.npy", batch_size=0)
    assert not (out / "x.npy").exists()


def test_a_file_name_that_is_not_utf8_stays_in_the_list(grey, paths, out):
    """As the bytes that the disk has."""
    name = os.fsencode(paths[0].parent) + b"/b\xe4r.png"
    shutil.copy(paths[0], name)
    run(grey, [paths[2], name], out / "x.npy")
    (_, listed) = json.loads((out / "x.npy.json").read_text())["paths"]
    assert os.fsencode(listed) == name


def test_a_full_disk_raises_write_error_and_the_next_run_resumes(
    grey, paths, out, bar, monkeypatch
):
    """The error names the file; once there is space again, the next run completes the file."""
    monkeypatch.setattr(parts, "_SECONDS", 0.0)
    with full_disk() as fill, pytest.raises(WriteError, match=r"x.npy.part/.*: cannot be written"):
        bar.then = lambda images: fill(300)
        run(grey, paths, out / "x.npy", progress=True)
    assert bar.counts
    assert run(grey, paths, out / "x.npy").num_images == 14
    assert sorted(p.name for p in out.iterdir()) == ["x.npy", "x.npy.json"]
