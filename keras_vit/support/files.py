"""Writes files and folders atomically: they get their final names only when they are complete.

An unfinished file is in a hidden folder `.NAME.xxxxxxxx.unfinished` next to its destination, and
the writer holds a lock on that folder. If the process is killed, the folder remains without a lock,
and the next process that writes to the same destination removes it.
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

from keras_vit.errors import ConfigError, KerasViTError, WriteError, listed, shown


def new_file(path: str | os.PathLike[str], suffix: str) -> Path:
    """Checks the path of a file that does not exist yet, and returns it.

    Raises:
        ConfigError: the file exists, or its name does not end with `suffix`.
        WriteError: as `check_place`.
    """
    path = Path(path)
    if path.suffix != suffix:
        raise ConfigError(f"{path}: expected a name that ends in {suffix}.")
    if path.exists():
        raise ConfigError(f"{path} exists. Remove it, or choose another name.")
    check_place(path)
    return path


def check_place(path: Path) -> None:
    """Checks that this user may write at a path, by writing a hidden file.

    Raises:
        WriteError: the path cannot be written.
    """
    with failure_named(path):
        folder = next(each for each in (path, *path.absolute().parents) if each.exists())
        tempfile.TemporaryFile(dir=folder).close()


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path for a new file; on success it becomes `path`, on failure it is removed.

    A reader sees either the old file or the complete new file.

    Raises:
        WriteError: the file cannot be written; `path` is unchanged.
    """
    path = Path(path)
    with failure_named(path), _workshop(path) as work:
        if path.exists() and not path.is_file():  # a device would be replaced as if it were a file
            raise OSError(errno.EINVAL, "it is a folder or a device, expected a file name")
        yield work / "new"
        (work / "new").replace(path)


@contextlib.contextmanager
def replace_folder(
    folder: str | os.PathLike[str], names: Container[str], error: type[KerasViTError]
) -> Iterator[Path]:
    """Yields a new, empty folder; on success it replaces `folder`.

    A reader sees either the old folder or the new one; for an instant `folder` does not exist.

    Args:
        folder: path of the folder.
        names: names of the files that an existing folder may hold; they are replaced.
        error: exception to raise if the existing folder holds other files.

    Raises:
        WriteError: the folder cannot be written; `folder` is unchanged.
    """
    folder = Path(folder)
    with failure_named(folder):
        try:
            foreign = [path.name for path in folder.iterdir() if path.name not in names]
        except (FileNotFoundError, NotADirectoryError) as fault:
            if folder.exists() and not folder.is_dir():
                raise error(f"{folder}: expected a folder, found a file.") from fault
            foreign = []  # absent, being replaced by another writer, or below a file
        if foreign:
            raise error(f"{folder}: not overwritten: it contains {listed(sorted(foreign))}.")
        with _workshop(folder) as work:
            new = work / "new"
            new.mkdir()
            yield new
            _take_place(new, folder, work / "old")


def _take_place(new: Path, folder: Path, old: Path) -> None:
    """Renames `folder` to `old`, and `new` to `folder`.

    If another writer puts its folder there between the two renames, that folder becomes `old`.
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
    """Writes indented JSON; if that fails, the old file is unchanged."""
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def open_plain(path: str | os.PathLike[str], folder: int | None = None) -> BufferedReader:
    """Opens a regular file for reading; refuses pipes, devices and the like.

    Reading a pipe may wait forever for its writer, and a device such as /dev/zero never ends.

    Args:
        path: path of the file.
        folder: the handle of its folder, if the folder is open already.

    Raises:
        OSError: the file does not exist, may not be read, or is not a regular file.
    """

    def without_waiting(path: str, flags: int) -> int:
        flags |= getattr(os, "O_NONBLOCK", 0)
        try:
            return os.open(path if folder is None else Path(path).name, flags, dir_fd=folder)
        except OSError as error:
            error.filename = path
            raise

    file = open(path, "rb", opener=without_waiting)  # noqa: SIM115  Path.open takes no opener
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "expected a regular file", os.fspath(path))
    return file


class OpenFolder:
    """An open folder, whose files stay readable if another folder is renamed to its path.

    Args:
        path: path of the folder.

    Raises:
        FileNotFoundError: the path does not exist.
        NotADirectoryError: the path is not a folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Files are opened relative to this handle, because another folder may take the path.
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY) if _HANDLES else None
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def sizes(self) -> dict[str, int | None]:
        """Returns file names and sizes in bytes; None for a broken link."""
        sizes: dict[str, int | None] = {}
        with os.scandir(self._path if self._handle is None else self._handle) as entries:
            for entry in entries:
                try:
                    if not entry.is_dir():
                        sizes[entry.name] = entry.stat().st_size
                except OSError:  # a broken or circular link; opening it raises
                    sizes[entry.name] = None
        return sizes

    def open(self, name: str) -> BufferedReader:
        """Opens a regular file for reading; the `name` of the result is the whole path.

        Raises:
            FileNotFoundError: the file was removed, or is a broken link.
            OSError: the file cannot be opened, or is a device, a pipe or the like.
        """
        return open_plain(self._path / name, self._handle)

    def is_current(self) -> bool:
        """Whether the path still leads to this folder."""
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
    """Whether a path exists; waits for a writer that is between two renames.

    A folder that is being replaced is absent for an instant, while its writer's hidden folder
    exists.
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
    """Turns an `OSError` in writing `place` into a `WriteError`, also for an invalid path."""
    try:
        with contextlib.suppress(OSError):
            place.stat()
    except ValueError as error:  # a NUL, or half of a character of UTF-16
        fault = OSError(errno.EINVAL, str(error))
        raise WriteError(f"{shown(str(place))}: not a valid path ({error}).", fault) from error
    try:
        yield
    except KerasViTError:
        raise
    except OSError as error:
        raise WriteError(
            f"{place}: cannot be written ({error.strerror or error}). Existing contents are "
            "unchanged. Free disk space, or choose a path where you may write.",
            error,
        ) from error


@contextlib.contextmanager
def room_checked(folder: Path, size: int) -> Iterator[None]:
    """Raises an `OSError` for a full disk if a library fails to write `size` bytes to `folder`.

    Libraries in C++ report a full disk as other errors, which name neither disk nor path.
    """
    try:
        yield
    except OSError:
        raise
    except Exception:
        if hasattr(os, "posix_fallocate"):
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)
        raise


@contextlib.contextmanager
def _workshop(place: Path) -> Iterator[Path]:
    """Yields a new, locked, hidden folder next to `place`."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _sweep(place)
    while True:
        work = Path(
            tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.", suffix=".unfinished")
        )
        lock = _lock(work, wait=True)
        if work.exists():
            break
        _unlock(lock)  # another writer removed it before it was locked
    try:
        yield work
    finally:
        _clear(work, place)
        _unlock(lock)


def _sweep(place: Path) -> None:
    """Removes the hidden folders of killed writers."""
    for work in place.parent.glob(f".{glob.escape(place.name)}.????????.unfinished"):
        lock = _lock(work, wait=False)
        if lock is not None:
            _clear(work, place)
            _unlock(lock)


def _clear(work: Path, place: Path) -> None:
    """Removes a writer's hidden folder; first moves an old folder in it back to a free `place`."""
    if (work / "old").exists() and not place.exists():
        try:
            (work / "old").rename(place)
        except OSError as error:  # another writer has taken the place since
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    shutil.rmtree(work, ignore_errors=True)


if sys.platform == "win32":  # folders of killed writers are not removed

    def _lock(folder: Path, wait: bool) -> int | None:
        return None
else:
    import fcntl

    def _lock(folder: Path, wait: bool) -> int | None:
        """Returns a handle that locks the folder while it is open; None if it cannot be locked.

        The system releases the lock when the process dies.
        """
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:  # another process has the lock, or this file system has no locks
            os.close(handle)
            return None
        return handle


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
