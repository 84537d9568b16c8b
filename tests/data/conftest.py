"""Folders of images that several test files read."""

import functools

import numpy as np
import pytest
from PIL import Image

from tests import refusals


class World(refusals.World):
    """Two folders of images, which are written when they are asked for."""

    @functools.cached_property
    def folder(self):
        """Three classes of 6, 4 and 2 images: grey, RGB, RGBA, PNG and JPEG, some nested deeper."""
        rng = np.random.default_rng(0)
        root = self.path / "pets"
        for name, count in (("cat", 6), ("dog", 4), ("eel", 2)):
            for k in range(count):
                shape = [(20, 24), (24, 20, 3), (16, 16, 4)][k % 3]
                place = root / name / ("more" if k == 1 else "")
                place.mkdir(parents=True, exist_ok=True)
                ending = "JPG" if k % 3 == 1 else "png"
                Image.fromarray(rng.integers(0, 256, shape, "uint8")).save(place / f"{k}.{ending}")
        (root / ".hidden").mkdir()
        (root / "cat" / ".DS_Store").write_bytes(b"\0")
        return root

    @functools.cached_property
    def photos(self):
        """Four images without classes, one of them in a folder of its own."""
        return self._write("photos", (16, 16, 3), 40)

    @functools.cached_property
    def masks(self):
        """A mask for each of the photographs, each of one class: 0 for the first, up to 3."""
        return self._write("masks", (16, 16), 1)

    def _write(self, name, shape, step):
        root = self.path / name
        for k, path in enumerate(("a.png", "b.png", "d.png", "more/c.png")):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full(shape, step * k, "uint8")).save(root / path)
        return root


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def folder(world):
    return world.folder


@pytest.fixture
def photos(world):
    return world.photos
