"""Files and folders that get their names when they are whole.

What is being written lies in a hidden folder `.NAME.xxxxxxxx.unfinished` beside its place, which
its writer holds locked. A process that is killed leaves that folder; the next one that writes to
the same place finds it free, and takes it away.
"""

import contextlib
import errno
import glob
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Container, Iterator
from io import BufferedReader
from pathlib import Path

from keras_vit.errors import KerasViTError, WriteError


@contextlib.contextmanager
def written_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path for a new file; on success it becomes `path`, else it goes.

    A reader sees the old file or the new one, never a part.

    Raises:
        WriteError: the system refused to write; `path` is as it was.
    """
    path = Path(path)
    with failure_named(path), _workshop(path) as work:
        yield work / "new"
        (work / "new").replace(path)


@contextlib.contextmanager
def folder_written_beside(
    folder: str | os.PathLike[str], names: Container[str], error: type[KerasViTError]
) -> Iterator[Path]:
    """Yields a new folder to fill; on success it takes the place of `folder`.

    A reader sees the old folder, the new one, or for an instant none.

    Args:
        folder: the place.
        names: of the files that an old folder may hold and that are given up.
        error: what to raise if it holds others.

    Raises:
        WriteError: the system refused to write; `folder` is as it was.
    """
    folder = Path(folder)
    try:
        foreign = [path.name for path in folder.iterdir() if path.name not in names]
    except FileNotFoundError:  # no such folder, or one that another writer replaces
        foreign = []
    except NotADirectoryError:
        foreign = [folder.name]
    if foreign:
        raise error(f"{folder}: holds {', '.join(sorted(foreign)[:5])}, so it is not overwritten.")
    with failure_named(folder), _workshop(folder) as work:
        new = work / "new"
        new.mkdir()
        yield new
        _take_place(new, folder, work / "old")


def _take_place(new: Path, folder: Path, old: Path) -> None:
    """Renames `new` to `folder`, whose present content becomes `old`.

    Another writer may take the place between the two renames; its work then is the old one.
    """
    while True:
        with contextlib.suppress(FileNotFoundError):
            folder.rename(old)
        try:
            new.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        shutil.rmtree(old, ignore_errors=True)


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Writes indented JSON, whole or not at all."""
    with written_beside(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def open_plain(path: str | os.PathLike[str], folder: int | None = None) -> BufferedReader:
    """Opens a plain file for reading, and nothing else that could stand at its path.

    A pipe would wait for its writer forever, and a device such as /dev/zero never ends.

    Args:
        path: of the file.
        folder: the handle of its folder, if that is open already.

    Raises:
        OSError: there is no such file, it may not be read, or it is no plain file.
    """

    def without_waiting(path: str, flags: int) -> int:
        flags |= getattr(os, "O_NONBLOCK", 0)
        return os.open(path if folder is None else Path(path).name, flags, dir_fd=folder)

    file = open(path, "rb", opener=without_waiting)  # noqa: SIM115  Path.open takes no opener
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "expected a plain file", os.fspath(path))
    return file


class OpenFolder:
    """A folder of which one state is read: what replaces it by a rename has no effect.

    Args:
        path: of the folder.

    Raises:
        FileNotFoundError: there is no such path.
        NotADirectoryError: the path is no folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # A file is opened relative to this handle, not to the path, which may lead elsewhere soon.
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY) if _HANDLES else None
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def sizes(self) -> dict[str, int | None]:
        """Returns the names of the files with their bytes; None for a link that leads nowhere."""
        sizes: dict[str, int | None] = {}
        with os.scandir(self._path if self._handle is None else self._handle) as entries:
            for entry in entries:
                try:
                    if not entry.is_dir():
                        sizes[entry.name] = entry.stat().st_size
                except FileNotFoundError:
                    sizes[entry.name] = None
        return sizes

    def open(self, name: str) -> BufferedReader:
        """Opens a plain file for reading; its `name` is the whole path.

        Raises:
            FileNotFoundError: the file was taken away, or is a link that leads nowhere.
            OSError: it cannot be opened, or is a device, a pipe or the like.
        """
        return open_plain(self._path / name, self._handle)

    def is_current(self) -> bool:
        """Returns whether the path still leads to this folder."""
        try:
            return self._handle is None or os.path.samestat(
                os.fstat(self._handle), self._path.stat()
            )
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Closes the folder; files that were opened stay open."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_HANDLES = os.open in os.supports_dir_fd and os.scandir in os.supports_fd


def exists(path: Path) -> bool:
    """Returns whether a path leads somewhere, after a writer that is between two renames.

    A folder that is replaced is absent for an instant, in which its writer's workshop is not.
    """
    for _ in range(100):
        if path.exists():
            return True
        if not any(path.parent.glob(f".{glob.escape(path.name)}.????????.unfinished/old")):
            break
        time.sleep(0.01)
    return path.exists()


@contextlib.contextmanager
def failure_named(place: Path) -> Iterator[None]:
    """Turns what the system says where `place` cannot be written into a `WriteError`."""
    try:
        yield
    except KerasViTError:
        raise
    except OSError as error:
        raise WriteError(
            f"{place}: cannot be written ({error.strerror or error}). What stood there before is "
            "as it was. Free space, or give a place where this user may write.",
            error,
        ) from error


@contextlib.contextmanager
def _workshop(place: Path) -> Iterator[Path]:
    """Yields a locked, empty folder beside `place`, where nobody else looks."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _sweep(place)
    while True:
        work = Path(
            tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.", suffix=".unfinished")
        )
        lock = _lock(work, wait=True)
        if work.exists():
            break
        _unlock(lock)  # another writer swept it between its making and its locking
    try:
        yield work
    finally:
        _clear(work, place)
        _unlock(lock)


def _sweep(place: Path) -> None:
    """Removes what killed writers left."""
    for work in place.parent.glob(f".{glob.escape(place.name)}.????????.unfinished"):
        lock = _lock(work, wait=False)
        if lock is not None:
            _clear(work, place)
            _unlock(lock)


def _clear(work: Path, place: Path) -> None:
    """Removes a workshop; an old folder whose place is still free goes back there."""
    if (work / "old").exists() and not place.exists():
        try:
            (work / "old").rename(place)
        except OSError as error:  # another writer has taken the place since
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    shutil.rmtree(work, ignore_errors=True)


if sys.platform == "win32":  # what a killed writer leaves stays

    def _lock(folder: Path, wait: bool) -> int | None:
        return None
else:
    import fcntl

    def _lock(folder: Path, wait: bool) -> int | None:
        """A handle that holds the folder while it is open; None if that cannot be had.

        The system lets go of it when its process dies.
        """
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:  # another has it, or this file system has no locks
            os.close(handle)
            return None
        return handle


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
