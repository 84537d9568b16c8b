"""Files and folders that get their names when they are whole.

What is being written lies in a hidden folder `.NAME.xxxxxxxx.unfinished` beside its place, which
its writer holds locked. A process that is killed leaves that folder; the next one that writes to
the same place finds it free, and takes it away.
"""

import contextlib
import glob
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Container, Iterator
from pathlib import Path

from keras_vit.errors import KerasViTError


@contextlib.contextmanager
def written_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path for a new file; on success it becomes `path`, else it goes.

    A reader sees the old file or the new one, never a part.
    """
    path = Path(path)
    with _workshop(path) as work:
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
    """
    folder = Path(folder)
    if folder.exists():
        inside = [p.name for p in folder.iterdir()] if folder.is_dir() else [folder.name]
        foreign = [name for name in inside if folder.is_file() or name not in names]
        if foreign:
            raise error(
                f"{folder}: holds {', '.join(sorted(foreign)[:5])}, so it is not overwritten."
            )
    with _workshop(folder) as work:
        new = work / "new"
        new.mkdir()
        yield new
        if folder.exists():
            folder.rename(work / "old")
        new.rename(folder)


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Writes indented JSON, whole or not at all."""
    with written_beside(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


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
        (work / "old").rename(place)
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
