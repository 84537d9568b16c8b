"""Finds image files in folders, by one rule for data sets and commands.

A regular file is an image file if its suffix names a format that Pillow reads, or if its first
bytes are those of such a format. Hidden files, such as the `._IMG.jpg` of macOS, are skipped. A
damaged `photo.jpg` is therefore an image that cannot be read, and is reported.
"""

import os
from pathlib import Path
from typing import NamedTuple

from keras_vit.errors import ConfigError
from keras_vit.images.decoding import TooManyPixelsError, find_format, size_in_header


class ImageFiles(NamedTuple):
    """The contents of a folder: paths of images, number of hidden files, paths of other files."""

    images: list[str]
    hidden: int
    others: list[str]


def list_images(path: str | os.PathLike[str]) -> ImageFiles:
    """Lists the images in a folder and in all folders below it, in the same order everywhere.

    Links to folders are followed, except for links to a folder that contains them. Hidden folders
    are not entered; each counts as one hidden file.

    Raises:
        ConfigError: a folder cannot be listed.
    """
    files = ImageFiles([], 0, [])
    hidden = _walk(os.fsdecode(path), files, ())
    return files._replace(hidden=hidden)


def _looks_like_one(path: str) -> bool:
    if find_format(path) is not None:
        return True
    try:
        size_in_header(path)
    except ConfigError as error:
        return isinstance(error, TooManyPixelsError)  # an image above the limit is also an image
    return True


def _walk(folder: str, files: ImageFiles, above: tuple[tuple[int, int], ...]) -> int:
    """Adds images and other files of a folder; returns the number of hidden entries."""
    try:
        status = Path(folder).stat()
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: (_is_folder(entry), entry.name))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{folder}: this folder cannot be listed ({reason}).") from error
    here = (status.st_dev, status.st_ino)
    if here in above:
        return 0
    hidden = 0
    for entry in inside:
        if entry.name.startswith("."):
            hidden += 1
        elif _is_folder(entry):
            hidden += _walk(entry.path, files, (*above, here))
        else:
            (files.images if _is_image(entry) else files.others).append(entry.path)
    return hidden


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_image(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is an image; if it cannot be opened, its suffix decides."""
    try:
        return entry.is_file() and _looks_like_one(entry.path)
    except OSError:
        return find_format(entry.name) is not None
