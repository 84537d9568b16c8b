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


@pytest.fixture
def full_disk():
    """A function that limits every file to 100,000 bytes."""
    with disk.full_disk() as fill:
        yield lambda: fill(100_000)


@pytest.fixture(scope="module")
def model():
    """A model with a megabyte of weights."""
    return tiny(hidden_size=128, mlp_dim=512)


def npz(path):
    write_npz(path, [("a", ARRAY)])


def json(path):
    write_json(path, list(range(100_000)))


@pytest.mark.parametrize("write", [npz, json])
def test_a_full_disk_keeps_the_old_file(full_disk, tmp_path, write):
    """The error names the path and the reason; no temporary file stays."""
    path = tmp_path / "x"
    path.write_text("old")
    full_disk()
    with pytest.raises(WriteError) as caught:
        write(path)
    assert str(caught.value).startswith(f"{path}: cannot be written (File too large)")
    assert caught.value.errno == errno.EFBIG
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("family", ["google", "timm", "transformers", "keras_vit"])
def test_a_full_disk_leaves_no_part_of_a_checkpoint(full_disk, tmp_path, model, family):
    """For families that are written as a file and as a folder."""
    full_disk()
    with pytest.raises(WriteError, match="cannot be written"):
        checkpoints.save(model, tmp_path / "x", family, lossy=True)
    assert [p.name for p in tmp_path.iterdir()] == []


def test_a_full_disk_keeps_the_old_preset(full_disk, tmp_path, model):
    """All files of the old preset are unchanged."""
    tiny().save_to_preset(tmp_path / "preset")
    before = {path.name: path.read_bytes() for path in (tmp_path / "preset").iterdir()}
    full_disk()
    with pytest.raises(WriteError, match="preset"):
        model.save_to_preset(tmp_path / "preset")
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "preset").iterdir()}
    assert [p.name for p in tmp_path.iterdir()] == ["preset"]


def test_a_report_below_a_file_is_refused_with_its_path(tmp_path):
    """A path below a file cannot be written."""
    (tmp_path / "file").touch()
    model, images = tiny(), np.zeros((16, 16, 3), "uint8")
    for place in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(WriteError, match=r"index\.html: cannot be written \("):
            write_report(model, place, [images])


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is allowed to root")
def test_a_forbidden_place(tmp_path):
    """A folder in which this user may not write is named."""
    (tmp_path / "mine").mkdir(mode=0o500)
    with pytest.raises(WriteError, match="Permission denied"):
        npz(tmp_path / "mine" / "x.npz")


def test_what_a_caller_does_wrong_keeps_its_name(tmp_path):
    """Errors of keras_vit inside the block are not renamed."""
    with pytest.raises(KerasViTError, match="mine") as caught, replace_file(tmp_path / "x"):
        raise KerasViTError("mine")
    assert not isinstance(caught.value, WriteError)
    assert [p.name for p in tmp_path.iterdir()] == []


def test_a_full_disk_leaves_no_export(full_disk, tmp_path, model):
    """torch's own writer would end the process."""
    full_disk()
    with pytest.raises(WriteError, match="x: cannot be written"):
        keras_vit.export(model, tmp_path / "x", "torch", verify=False)
    assert list(tmp_path.iterdir()) == []
