"""An npy file that grows row by row, survives its writer, and gets its name when it is complete.

Until then the file is `NAME.part`, and `NAME.part.json` beside it holds the task and the progress.
A process killed at any moment leaves these two files, and the next process with the same task
continues from them.
"""

import contextlib
import io
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from keras_vit.distribution.processes import by_the_first, from_the_first, together
from keras_vit.errors import ConfigError, WriteError
from keras_vit.files import failure_named, write_json

_SECONDS = 0.2
"""Least time between two records of the progress: each record waits for the disk."""


class Rows:
    """Appends rows to a file, from the point where an interrupted run of the same task stopped.

    Use it in a `with` block, which also records the progress if an exception ends the block.

    Args:
        path: path of the complete file; `finish` leaves the part to be renamed to it.
        task: everything that determines the contents, as plain JSON types.

    Attributes:
        done: number of inputs that have been processed, as the caller counts them.
        count: number of rows.
        notes: the caller's notes on the inputs, as plain JSON types.

    Raises:
        ConfigError: the part at this path belongs to another task, or another process writes it.
    """

    def __init__(self, path: Path, task: Mapping[str, Any]) -> None:
        self._path = path
        self._task = json.loads(json.dumps(task))
        self.part = path.with_name(path.name + ".part")
        self._record = path.with_name(path.name + ".part.json")
        self._lock = FileLock(path.with_name(path.name + ".part.lock"), timeout=0)
        self.done = self.count = 0
        self.notes: list[Any] = []
        self._dtype: np.dtype[Any] | None = None
        self._file: Any = None
        self._recorded = 0.0

    def __enter__(self) -> "Rows":
        with failure_named(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except Timeout as error:
                raise ConfigError(f"{self._path}: another process is writing it.") from error
        try:
            self._resume()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._file is not None and not isinstance(error, WriteError):
                self._save()
        finally:
            self._close()
            self._lock.release()

    def _close(self) -> None:
        """Closes the file; a second failure on a full disk is ignored, since closing flushes."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def append(self, rows: np.ndarray, inputs: int, notes: Sequence[Any] = ()) -> None:
        """Writes the rows of the next `inputs` inputs; all rows have one dtype and shape."""
        with failure_named(self.part):
            if self._dtype is None:
                self._dtype = np.dtype((rows.dtype, rows.shape[1:]))
                self._file.write(_header(self._dtype, 0))
            self._file.write(np.ascontiguousarray(rows).view(np.uint8))
        self.count += len(rows)
        self.pass_over(inputs, notes)

    def pass_over(self, inputs: int, notes: Sequence[Any] = ()) -> None:
        """Counts inputs as processed without writing a row."""
        self.done += inputs
        self.notes += notes
        if time.monotonic() - self._recorded > _SECONDS:
            self._save()

    def finish(self) -> Path:
        """Completes the header and returns the path of the part; the caller renames it.

        Raises:
            ConfigError: no row was written.
        """
        if self._dtype is None:
            raise ConfigError(f"{self._path}: there is nothing to write.")
        self._save()
        with failure_named(self.part):
            self._file.seek(0)
            self._file.write(_header(self._dtype, self.count))
            self._sync()
            self._file.close()
        self._file = None
        return self.part

    def clear(self) -> None:
        """Removes the part, the record of the progress and the lock file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        for path in (self.part, self._record, Path(self._lock.lock_file)):
            path.unlink(missing_ok=True)

    def _resume(self) -> None:
        record = self._read_record()
        if record is None:
            self._file = self.part.open("wb")
            return
        if record["task"] != self._task:
            names = sorted({*record["task"], *self._task})
            differing = [k for k in names if record["task"].get(k) != self._task.get(k)]
            raise ConfigError(
                f"{self.part} is the beginning of another run: other {', '.join(differing)}. "
                "Remove it, or write to another path."
            )
        self._file = self.part.open("r+b")
        self.done, self.count, self.notes = record["done"], record["count"], record["notes"]
        if self.count:
            np.lib.format.read_magic(self._file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(self._file)
            self._dtype = np.dtype((dtype, shape[1:]))
        self._file.truncate(record["bytes"])  # rows behind the record are written again
        self._file.seek(record["bytes"])

    def _read_record(self) -> dict[str, Any] | None:
        """Returns the record of the progress; None if it or a row that it counts is missing."""
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ConfigError(f"{self._record} is damaged ({error}). Remove it.") from error
        there = self.part.exists() and self.part.stat().st_size >= record["bytes"]
        return record if there else None

    def _save(self) -> None:
        self._sync()  # rows reach the disk before the record that counts them
        size = 0
        if self._dtype is not None and self.count:
            size = len(_header(self._dtype, 0)) + self.count * self._dtype.itemsize
        progress = {"bytes": size, "done": self.done, "count": self.count}
        write_json(self._record, {**progress, "notes": self.notes, "task": self._task})
        self._recorded = time.monotonic()

    def _sync(self) -> None:
        with failure_named(self.part):
            self._file.flush()
            os.fsync(self._file.fileno())


class RowsElsewhere:
    """The rows of a file that another process writes, counted as `Rows` counts them.

    Args:
        done, count, notes: as the attributes of `Rows`.
    """

    def __init__(self, done: int, count: int, notes: Sequence[Any]) -> None:
        self.done, self.count, self.notes = done, count, list(notes)

    def append(self, rows: np.ndarray, inputs: int, notes: Sequence[Any] = ()) -> None:
        """Counts rows."""
        self.count += len(rows)
        self.pass_over(inputs, notes)

    def pass_over(self, inputs: int, notes: Sequence[Any] = ()) -> None:
        """Counts inputs as processed without a row."""
        self.done += inputs
        self.notes += notes

    def clear(self) -> None:
        """Has no effect: the other process removes its files."""


@contextlib.contextmanager
def rows_of_all(path: Path, task: Mapping[str, Any]) -> Iterator[Rows | RowsElsewhere]:
    """Opens `Rows`; of processes that compute the rows together, the first has them.

    At the end of the `with` block the file is complete for all processes.

    Raises:
        ConfigError, WriteError: as `Rows`; every process raises.
    """
    if together()[1] == 1:
        with Rows(path, task) as rows:
            yield rows
        return
    with contextlib.ExitStack() as stack:
        opened: list[Rows] = []
        by_the_first(lambda: opened.append(stack.enter_context(Rows(path, task))), path)
        begun = from_the_first([[rows.done, rows.count, rows.notes] for rows in opened])
        yield opened[0] if opened else RowsElsewhere(*begun[0])
    by_the_first(lambda: None, path)


def _header(dtype: np.dtype[Any], count: int) -> bytes:
    """Returns an npy header whose length is the same for any count.

    NumPy leaves room for the first axis to grow.
    """
    buffer = io.BytesIO()
    fields = {
        "descr": np.lib.format.dtype_to_descr(dtype.base),
        "fortran_order": False,
        "shape": (count, *dtype.shape),
    }
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()
