"""Writes files and folders that get their names only when they are complete.

An unfinished file lies in a hidden folder `.NAME.xxxxxxxx.unfinished` beside its destination; the
writer holds a lock on that folder. A killed process leaves the folder behind without the lock, and
the next process that writes to the same destination removes it.
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
    """Returns the path of a file that does not exist yet.

    Raises:
        ConfigError: it exists, or its name ends otherwise.
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
    """Checks that this user may write at a path, by a file that nobody sees.

    Raises:
        WriteError: the system refuses to write there.
    """
    with failure_named(path):
        folder = next(each for each in (path, *path.absolute().parents) if each.exists())
        tempfile.TemporaryFile(dir=folder).close()


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path for a new file; on success it becomes `path`, on failure it is removed.

    A reader sees either the old file or the complete new file.

    Raises:
        WriteError: the system refused to write; `path` is unchanged.
    """
    path = Path(path)
    with failure_named(path), _workshop(path) as work:
        if path.exists() and not path.is_file():  # a device would be replaced as if it were a file
            raise OSError(errno.EINVAL, "it is a folder or a device, expected a name for a file")
        yield work / "new"
        (work / "new").replace(path)


@contextlib.contextmanager
def replace_folder(
    folder: str | os.PathLike[str], names: Container[str], error: type[KerasViTError]
) -> Iterator[Path]:
    """Yields a new folder to fill; on success it replaces `folder`.

    A reader sees either the old folder or the new one; for an instant `folder` does not exist.

    Args:
        folder: path of the folder.
        names: names of the files that an existing folder may hold; they are replaced.
        error: exception to raise if the existing folder holds other files.

    Raises:
        WriteError: the system refused to write; `folder` is unchanged.
    """
    folder = Path(folder)
    with failure_named(folder):
        try:
            foreign = [path.name for path in folder.iterdir() if path.name not in names]
        except (FileNotFoundError, NotADirectoryError) as fault:
            if folder.exists() and not folder.is_dir():
                raise error(f"{folder}: is a file, so no folder is written there.") from fault
            foreign = []  # absent, being replaced by another writer, or below a file
        if foreign:
            raise error(f"{folder}: holds {listed(sorted(foreign))}, so it is not overwritten.")
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
    """Writes indented JSON; a failure leaves the old file unchanged."""
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def open_plain(path: str | os.PathLike[str], folder: int | None = None) -> BufferedReader:
    """Opens a plain file for reading; refuses pipes, devices and the like.

    A pipe would wait for its writer forever, and a device such as /dev/zero never ends.

    Args:
        path: path of the file.
        folder: the handle of its folder, if the folder is open already.

    Raises:
        OSError: the file does not exist, may not be read, or is no plain file.
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
        raise OSError(errno.EINVAL, "expected a plain file", os.fspath(path))
    return file


class OpenFolder:
    """An open folder, whose files stay readable if another folder takes its path by a rename.

    Args:
        path: path of the folder.

    Raises:
        FileNotFoundError: the path does not exist.
        NotADirectoryError: the path is no folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Files are opened relative to this handle, because the path may lead elsewhere soon.
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY) if _HANDLES else None
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def sizes(self) -> dict[str, int | None]:
        """Returns file names and sizes in bytes; the size of a link that leads nowhere is None."""
        sizes: dict[str, int | None] = {}
        with os.scandir(self._path if self._handle is None else self._handle) as entries:
            for entry in entries:
                try:
                    if not entry.is_dir():
                        sizes[entry.name] = entry.stat().st_size
                except OSError:  # a broken link, or one in a circle; opening it says so
                    sizes[entry.name] = None
        return sizes

    def open(self, name: str) -> BufferedReader:
        """Opens a plain file for reading; its `name` is the whole path.

        Raises:
            FileNotFoundError: the file was removed, or is a broken link.
            OSError: the file cannot be opened, or is a device, a pipe or the like.
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
    """Returns whether a path exists, and waits for a writer that is between two renames.

    A folder that is being replaced is absent for an instant, in which its writer's hidden folder
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
    """Turns an `OSError` in writing `place` into a `WriteError`, and refuses what is no path."""
    try:
        with contextlib.suppress(OSError):
            place.stat()
    except ValueError as error:  # a NUL, or half of a character of UTF-16
        fault = OSError(errno.EINVAL, str(error))
        raise WriteError(f"{shown(str(place))}: is no path ({error}).", fault) from error
    try:
        yield
    except KerasViTError:
        raise
    except OSError as error:
        raise WriteError(
            f"{place}: cannot be written ({error.strerror or error}). Existing contents are "
            "unchanged. Free space, or give a place where this user may write.",
            error,
        ) from error


@contextlib.contextmanager
def room_checked(folder: Path, size: int) -> Iterator[None]:
    """Raises the system's `OSError` if a library fails where `folder` has no room for `size` bytes.

    Writers in C++ report a full disk by errors of their own, which name neither disk nor path.
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
    """Yields a new, locked, hidden folder beside `place`."""
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
    """Removes the folders that killed writers have left."""
    for work in place.parent.glob(f".{glob.escape(place.name)}.????????.unfinished"):
        lock = _lock(work, wait=False)
        if lock is not None:
            _clear(work, place)
            _unlock(lock)


def _clear(work: Path, place: Path) -> None:
    """Removes a writer's hidden folder; an old folder inside moves back to a free `place` first."""
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
