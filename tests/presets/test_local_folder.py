"""Files and folders of this machine that the system cannot read are refused by name."""

import errno
import io
import os
from pathlib import Path

import pytest

import keras_vit
from keras_vit import upload_preset
from keras_vit.errors import CheckpointError, PresetError, SourceError
from keras_vit.presets.catalog import preset_named
from keras_vit.presets.source import Source
from tests.plain import raises

pytestmark = pytest.mark.without_backend

DIGITS = preset_named("vit_digits").folder


@pytest.fixture
def folder(tmp_path):
    """A preset."""
    new = tmp_path / "preset"
    new.mkdir()
    for path in DIGITS.iterdir():
        (new / path.name).write_bytes(path.read_bytes())
    return new


def test_a_circle_of_links_beside_the_weights_does_no_harm(folder):
    """Of one link or of two; the names of presets and weights are others."""
    (folder / "x").symlink_to("x")
    (folder / "y.npz").symlink_to("z.npz")
    (folder / "z.npz").symlink_to("y.npz")
    assert keras_vit.info(folder).config.num_classes == 10


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_that_is_a_circle_of_links_is_named(name, folder):
    (folder / name).unlink()
    (folder / name).symlink_to(name)
    with raises(SourceError, f"{folder / name}: ", "symbolic links"), Source.parse(folder).open():
        pass


@pytest.mark.parametrize("name", ["a" * 300, "b" * 5000, "dir/" + "a" * 300])
def test_a_name_that_is_too_long_is_no_file(name):
    """The message shortens it; as a path it is named with the reason."""
    with raises(SourceError, "is no preset, and no existing file or folder") as caught:
        Source.parse(name)
    assert len(str(caught.value)) < 900
    with raises(PresetError, "expected a folder"):
        upload_preset("hf://us/vit", name)


def test_a_path_that_is_too_long_is_named(tmp_path):
    with raises(SourceError, "a" * 300, "cannot be opened (File name too long)"):
        keras_vit.info(tmp_path / ("a" * 300))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file of Linux")
def test_a_read_error_of_the_disk_is_named():
    """The first bytes of this file cannot be read."""
    with raises(CheckpointError, "/proc/self/mem: cannot be read (Input/output error)"):
        keras_vit.info("/proc/self/mem")


def test_a_read_error_in_json_is_named(folder, monkeypatch):
    class Failing(io.BytesIO):
        def read(self, size=-1):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(
        "keras_vit.presets.local_folder.LocalFolder.open", lambda self, name: Failing()
    )
    with raises(SourceError, "config.json: cannot be read (Input/output error)"):
        Source.parse(folder).preset()


def test_a_folder_that_may_not_be_opened_is_named(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("keras_vit.presets.local_folder.OpenFolder", refuse)
    with raises(SourceError, str(folder), "cannot be opened (Permission denied)"):
        keras_vit.info(folder)
