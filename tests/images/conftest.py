"""A folder with a photograph, and with what is no image."""

import functools
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import refusals
from tests.digits import encoded
from tests.images.pictures import PHOTO


class World(refusals.World):
    """The working folder, which is the home folder too."""

    @functools.cached_property
    def places(self):
        """Places that are no images, and images that are refused, are written; the folder."""
        os.mkfifo("pipe.png")
        Path("folder.jpg").mkdir()
        Path("loop.png").symlink_to("loop.png")
        Path("text.png").write_bytes(b"no image")
        Path("x.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(99))
        Image.fromarray(np.zeros((8, 8), "int32")).save("depth.tif")
        Image.new("L", (1, 60_000)).save("scan.png")
        return self.path


@pytest.fixture
def world(tmp_path, monkeypatch):
    (tmp_path / "photo.png").write_bytes(encoded(PHOTO))
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    # Pillow would pass PostScript to Ghostscript.
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("it was run"))
    return World(tmp_path)


@pytest.fixture
def home(world):
    return world.path
