"""Places in which no file or folder can be written, and which a refusal leaves as they were."""

import os

import pytest

from keras_vit.errors import PresetError
from keras_vit.support.files import replace_folder
from tests.refusals import World


class PlacesWorld(World):
    """Adds a file, a folder with a file and a pipe."""

    def __init__(self, path, setenv):
        super().__init__(path)
        self.setenv = setenv
        (path / "file").write_text("old")
        (path / "folder").mkdir()
        (path / "folder" / "other").touch()
        os.mkfifo(path / "pipe")

    def write_folder(self, name):
        with replace_folder(self.path / name, ["a"], PresetError):
            pass


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = PlacesWorld(tmp_path, monkeypatch.setenv)
    before = set(tmp_path.rglob("*"))
    yield world
    assert set(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "old" and (tmp_path / "pipe").is_fifo()
