"""Reads folders and images at paths of this machine and at addresses, by pyarrow."""

import contextlib
import functools
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_vit.environment.extras import import_extra
from keras_vit.errors import ConfigError, first_line
from keras_vit.images import list_images
from keras_vit.images.decoding import format_of_name


def pyarrow() -> Any:
    """Returns the module pyarrow; raises `ConfigError` if it is not installed."""
    for module in ("pyarrow.fs", "pyarrow.parquet"):
        import_extra(module, "ray", "keras_vit.ray")
    return import_extra("pyarrow", "ray", "keras_vit.ray")


def is_address(place: str) -> bool:
    """Whether a place is an address such as `s3://bucket/folder`, not a path of this machine."""
    return "://" in place


def file_system(place: str) -> tuple[Any, str]:
    """Returns the file system of a place, and the path in it.

    Args:
        place: a path of this machine, or an address that pyarrow reads, such as
            `s3://bucket/folder`, or `fsspec+az://container/folder` by an installed fsspec package.

    Raises:
        ConfigError: pyarrow cannot read this kind of address.
    """
    if not is_address(place):
        return pyarrow().fs.LocalFileSystem(), str(Path(place).absolute())
    scheme, _, rest = place.partition("://")
    host, _, path = rest.partition("/")
    with _reading(place):
        system, start = _connect(f"{scheme}://{host}/")
    return system, posixpath.join(start, path)


@functools.cache  # so that a client of S3 is made once
def _connect(address: str) -> tuple[Any, str]:
    system_and_path: tuple[Any, str] = pyarrow().fs.FileSystem.from_uri(address)
    return system_and_path


def files(place: str, *, recursive: bool = False) -> list[Any]:
    """Returns pyarrow's `FileInfo` of the files in a folder; none if it does not exist.

    Raises:
        ConfigError: the folder cannot be listed.
    """
    fs = pyarrow().fs
    with _reading(place):
        system, path = file_system(place)
        selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
        return [info for info in system.get_file_info(selector) if info.type == fs.FileType.File]


def images_at(place: str) -> list[str]:
    """Returns the image at a place, or the images of the folder and of all folders below it.

    On this machine, `keras_vit.images.list_images` finds them. Elsewhere the suffix of a name
    decides, because opening a file is a request; hidden files are left out.

    Raises:
        ConfigError: the place does not exist or cannot be listed.
    """
    with _reading(place):
        system, path = file_system(place)
        kind = system.get_file_info(path).type.name
    if kind == "NotFound":
        raise ConfigError(f"{place}: no such file or folder.")
    if kind == "File":
        return [place]
    if not is_address(place):
        return list_images(place).images
    names = sorted(posixpath.relpath(info.path, path) for info in files(place, recursive=True))
    shown = (name for name in names if not re.search(r"(^|/)\.", name))
    return [posixpath.join(place, name) for name in shown if format_of_name(name)]


def read_bytes(address: str) -> bytes:
    """Returns the content of a file; raises `ConfigError` if it cannot be read."""
    with _reading(address):
        system, path = file_system(address)
        with system.open_input_stream(path) as stream:
            return bytes(stream.read())


@contextlib.contextmanager
def _reading(place: str) -> Iterator[None]:
    """Context in which an error of a file system, of whatever class, becomes a `ConfigError`."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{place}: cannot be read ({first_line(error)}).") from error
