"""`list_images`: which files count as images."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.errors import ConfigError
from keras_vit.images import list_images

pytestmark = pytest.mark.without_backend

PICTURE = Image.fromarray(np.zeros((4, 4, 3), "uint8"))
SUFFIXES = (".jpg", ".JPEG", ".jfif", ".png", ".avif", ".ppm", ".webp", ".tiff", ".bmp", ".gif")


def test_files_with_a_suffix_that_pillow_reads_are_images(tmp_path):
    """In capitals too; a damaged file counts, and is refused when it is read."""
    for suffix in SUFFIXES:
        (tmp_path / f"x{suffix}").write_bytes(b"damaged")
    assert len(list_images(tmp_path).images) == len(SUFFIXES)


def test_files_with_other_suffixes_are_recognised_by_content(tmp_path):
    """Files without a suffix too."""
    PICTURE.save(tmp_path / "image", "jpeg")
    PICTURE.save(tmp_path / "image.part", "png")
    for name, content in (
        ("Makefile", b"all:\n"),
        ("notes.txt", b"Python is a language"),
        ("x.h5", b"\x89HDF\r\n\x1a\n"),
        ("page.eps", b"%!PS-Adobe"),
        ("empty", b""),
    ):
        (tmp_path / name).write_bytes(content)
    images = list_images(str(tmp_path)).images
    assert images == [str(tmp_path / "image"), str(tmp_path / "image.part")]


def test_hidden_files_folders_and_pipes_are_no_images(tmp_path):
    """Also if their names have the suffix of an image."""
    PICTURE.save(tmp_path / "._IMG.jpg")
    (tmp_path / "x.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    assert not list_images(tmp_path).images


def test_a_folder_is_listed_recursively(tmp_path):
    """Images are sorted, hidden entries counted, other files named; link loops end."""
    for name in ("b.png", "a.jfif", "x.jpg/c.png", ".hidden/d.png", "x.jpg/._c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        PICTURE.save(tmp_path / name, "png")
    (tmp_path / "notes.txt").write_text("no image")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "x.jpg" / "up").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "x.jpg")
    files = list_images(tmp_path)
    names = [os.path.relpath(path, tmp_path) for path in files.images]
    assert names == ["a.jfif", "b.png", "link/c.png", "x.jpg/c.png"]
    assert [os.path.relpath(path, tmp_path) for path in files.others] == ["notes.txt", "pipe.png"]
    assert files.hidden == 3


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path):
    """Otherwise its images would be left out silently."""
    with pytest.raises(ConfigError, match=r"absent: this folder cannot be listed \(No such file"):
        list_images(tmp_path / "absent")


def test_a_link_to_itself_is_an_unreadable_image(tmp_path):
    """It is listed by its suffix, and the message names it; others beside it are read."""
    Image.new("L", (16, 16)).save(tmp_path / "a.png")
    for name in ("x.png", "notes"):
        (tmp_path / name).symlink_to(name)
    found = list_images(tmp_path)
    assert [Path(path).name for path in found.images] == ["a.png", "x.png"]
    reasons = []
    list(Preprocessor(16).batches(found.images, on_error=lambda *why: reasons.append(why)))
    assert [Path(path).name for path, _ in reasons] == ["x.png"]
    assert "x.png: not a readable image" in str(reasons[0][1])
