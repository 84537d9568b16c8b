"""Folders of this machine and of object stores, by the file systems of pyarrow and fsspec."""

import contextlib
import dataclasses
import functools
import posixpath
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_vit.errors import ConfigError, WriteError
from keras_vit.files import written_beside
from keras_vit.images import list_images
from keras_vit.images.decoding import format_of_name


def is_url(place: str) -> bool:
    """Whether a place is an address such as `s3://bucket/folder`, not a path of this machine."""
    return "://" in place


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder, and the file system that holds it.

    Args:
        place: a path of this machine, or an address such as `s3://bucket/folder`, `gs://` or
            any other that pyarrow or an installed fsspec package knows.

    Raises:
        ConfigError: no installed package knows the kind of address.
    """

    place: str

    def __post_init__(self) -> None:
        _resolved(self.place)

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine, or mounted there."""
        return not is_url(self.place)

    def names(self, inside: str = "") -> set[str]:
        """Returns the names of the files in this folder, or in a folder inside; none if absent."""
        from pyarrow import fs

        with _reading(self.place):
            system, path = _resolved(self.place)
            selector = fs.FileSelector(posixpath.join(path, inside), allow_not_found=True)
            entries = system.get_file_info(selector)
        return {entry.base_name for entry in entries if entry.type == fs.FileType.File}

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, which has its name only when it is complete; an old one is replaced.

        Raises:
            WriteError: the file system refused; nothing has the name, or the old file still has it.
        """
        if self.is_local:
            target = Path(self.place, name)
            with written_beside(target) as temporary:
                temporary.write_bytes(content)
            return
        try:
            system, path = _resolved(self.place)
            target_path = posixpath.join(path, name)
            unfinished = posixpath.join(path, UNFINISHED, uuid.uuid4().hex)
            for folder in {posixpath.dirname(target_path), posixpath.dirname(unfinished)}:
                system.create_dir(folder, recursive=True)
            # Closing the stream of a failed upload may complete a part of it, under this name.
            with system.open_output_stream(unfinished) as stream:
                stream.write(content)
            system.move(unfinished, target_path)
        except Exception as error:  # every file system raises its own types
            cause = error if isinstance(error, OSError) else OSError(str(error))
            raise WriteError(
                f"{self.place}: {name} cannot be written ({_brief(error)}). Give a place where "
                "this user may write.",
                cause,
            ) from error

    def open(self, name: str) -> Any:
        """Opens a file for reading at any position.

        Raises:
            ConfigError: the file cannot be read.
        """
        with _reading(f"{self.place}/{name}"):
            system, path = _resolved(self.place)
            return system.open_input_file(posixpath.join(path, name))

    def images(self) -> list[str]:
        """Returns the images of this folder and of all folders below it, in order.

        On this machine, `keras_vit.images.list_images` finds them. Elsewhere the suffix of a
        name decides alone, because opening a file is a request; hidden files are left out.

        Raises:
            ConfigError: the folder does not exist or cannot be listed.
        """
        if self.is_local:
            if Path(self.place).is_dir():
                return list_images(self.place).images
            if not Path(self.place).exists():
                raise ConfigError(f"{self.place}: no such file or folder.")
            return [self.place]
        from pyarrow import fs

        with _reading(self.place):
            system, path = _resolved(self.place)
            if system.get_file_info(path).type == fs.FileType.File:
                return [self.place]
            entries = system.get_file_info(fs.FileSelector(path, recursive=True))
        files = [entry.path for entry in entries if entry.type == fs.FileType.File]
        inside = [posixpath.relpath(name, path) for name in files]
        shown = sorted(name for name in inside if not _is_hidden(name) and format_of_name(name))
        return [posixpath.join(self.place, name) for name in shown]

    def clear_unfinished(self) -> None:
        """Removes what killed writers have left in an object store."""
        if not self.is_local:
            with contextlib.suppress(Exception):  # a later run removes it
                system, path = _resolved(self.place)
                system.delete_dir(posixpath.join(path, UNFINISHED))


class RemoteImage:
    """An image in an object store, which is read when it is decoded.

    Args:
        url: the address of the image.
    """

    def __init__(self, url: str) -> None:
        self.name = url

    def read(self, size: int = -1) -> bytes:
        """Returns the first `size` bytes of the image."""
        system, path = _resolved(self.name)
        with system.open_input_stream(path) as stream:
            return stream.read(None if size < 0 else size)


UNFINISHED = ".keras_vit/unfinished"
"""The folder, inside a folder of an object store, of files that are being written."""


def _resolved(place: str) -> tuple[Any, str]:
    """Returns the pyarrow file system of a place, and the path in it."""
    if not is_url(place):
        from pyarrow import fs

        return fs.LocalFileSystem(), str(Path(place).absolute())
    scheme, _, rest = place.partition("://")
    host, _, path = rest.partition("/")
    system, start = _file_system(f"{scheme}://{host}/")
    return system, posixpath.join(start, path)


@functools.cache
def _file_system(root: str) -> tuple[Any, str]:
    """Returns a file system of pyarrow, and the path of its root; a client of S3 is made once."""
    from pyarrow import fs

    with contextlib.suppress(ValueError, NotImplementedError):  # a kind unknown to pyarrow
        return fs.FileSystem.from_uri(root)
    try:
        import fsspec

        system, start = fsspec.core.url_to_fs(root)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{root}: no installed package reads this kind of address ({_brief(error)})."
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), start


@contextlib.contextmanager
def _reading(place: str) -> Iterator[None]:
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # every file system raises its own types
        raise ConfigError(f"{place}: cannot be read ({_brief(error)}).") from error


def _brief(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
