"""A full disk or a forbidden place raises WriteError with the path, and no part of a file stays."""

import errno
import os

import numpy as np
import pytest

import keras_vit
from keras_vit import KerasViTError, checkpoints
from keras_vit.checkpoints.containers import write_npz
from keras_vit.errors import WriteError
from keras_vit.explanation.report import write_report
from keras_vit.support.files import replace_file, write_json
from tests import disk
from tests.helpers import tiny

ARRAY = np.random.default_rng(0).standard_normal((300, 300)).astype("float32")
WRITERS = {
    "npz": lambda _, path: write_npz(path, [("a", ARRAY)]),
    "json": lambda _, path: write_json(path, list(range(100_000))),
    "preset": lambda model, path: model.save_to_preset(path),
    "google": lambda model, path: checkpoints.save(model, path, "google"),
    "transformers": lambda model, path: checkpoints.save(model, path, "transformers", lossy=True),
    # torch's own writer would end the process.
    "torch": lambda model, path: keras_vit.export(model, path, "torch", verify=False),
}


@pytest.fixture(scope="module")
def model():
    """A model with a megabyte of weights."""
    return tiny(hidden_size=128, mlp_dim=512)


@pytest.mark.parametrize(
    "name",
    [name if name == "npz" else pytest.param(name, marks=pytest.mark.nightly) for name in WRITERS],
)
def test_a_full_disk_leaves_no_part_of_a_file(tmp_path, model, name):
    """The error names the path and the reason."""
    with disk.full_disk() as fill:
        fill(100_000)
        with pytest.raises(WriteError, match="x.*cannot be written") as caught:
            WRITERS[name](model, tmp_path / "x")
    assert caught.value.errno in (errno.EFBIG, None)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["json", "preset"])
def test_a_full_disk_keeps_what_was_there(tmp_path, model, name):
    """A file, and all files of a folder."""
    path = tmp_path / "x"
    if name == "preset":
        tiny().save_to_preset(path)
    else:
        path.write_text("old")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with disk.full_disk() as fill:
        fill(100_000)
        with pytest.raises(WriteError):
            WRITERS[name](model, path)
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}


def test_a_report_below_a_file_is_refused_with_its_path(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(WriteError, match=r"index\.html: cannot be written \("):
            write_report(tiny(), place, [np.zeros((16, 16, 3), "uint8")])


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is allowed to root")
def test_a_forbidden_place(tmp_path):
    """A folder in which this user may not write is named."""
    (tmp_path / "mine").mkdir(mode=0o500)
    with pytest.raises(WriteError, match="Permission denied"):
        WRITERS["npz"](None, tmp_path / "mine" / "x.npz")


def test_what_a_caller_does_wrong_keeps_its_name(tmp_path):
    """Errors of keras_vit inside the block are not renamed."""
    with pytest.raises(KerasViTError, match="mine") as caught, replace_file(tmp_path / "x"):
        raise KerasViTError("mine")
    assert not isinstance(caught.value, WriteError)
    assert not any(tmp_path.iterdir())
