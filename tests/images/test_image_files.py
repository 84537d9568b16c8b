"""`list_images`: which files count as images."""

import os

import numpy as np
import pytest

from keras_vit.images import list_images
from tests.digits import encoded

pytestmark = pytest.mark.without_backend

PIXELS = np.zeros((4, 4, 3), "uint8")
SUFFIXES = (".jpg", ".JPEG", ".jfif", ".png", ".avif", ".ppm", ".webp", ".tiff", ".bmp", ".gif")


def test_files_are_images_by_their_suffix_or_their_content(tmp_path):
    """In capitals too; a damaged file counts, and is refused when it is read."""
    damaged = [f"x{suffix}" for suffix in SUFFIXES]
    files = dict.fromkeys(damaged, b"damaged")
    files |= {"image": encoded(PIXELS, "jpeg"), "image.part": encoded(PIXELS), "empty": b""}
    files |= {"Makefile": b"all:\n", "notes.txt": b"Python is a language"}
    files |= {"x.h5": b"\x89HDF\r\n\x1a\n", "page.eps": b"%!PS-Adobe"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    found = list_images(str(tmp_path)).images
    expected = sorted([*damaged, "image", "image.part"])
    assert found == [str(tmp_path / name) for name in expected]


def test_a_folder_is_listed_recursively(tmp_path):
    """Images are sorted, hidden entries counted, other files named; link loops end.

    A link to itself is an image by its suffix.
    """
    for name in ("b.png", "a.jfif", "x.jpg/c.png", ".hidden/d.png", "x.jpg/._c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(encoded(PIXELS))
    (tmp_path / "notes.txt").write_text("no image")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "x.jpg" / "up").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "x.jpg")
    for name in ("loop.png", "loop"):
        (tmp_path / name).symlink_to(name)
    files = list_images(tmp_path)
    names = [os.path.relpath(path, tmp_path) for path in files.images]
    assert names == ["a.jfif", "b.png", "loop.png", "link/c.png", "x.jpg/c.png"]
    others = [os.path.relpath(path, tmp_path) for path in files.others]
    assert others == ["loop", "notes.txt", "pipe.png"]
    assert files.hidden == 3
