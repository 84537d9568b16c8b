"""Writes the rows of one array in steps, so that an interrupted computation can resume.

The rows of a file `NAME` are first written to a folder `NAME.part`: `rows.npy` grows by the rows of
some steps, and then `record.json` states what the rows are and how many are valid. A process killed
at any moment leaves a record of complete rows, and the next process with the same task resumes
after them.
"""

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from keras_vit.distribution.processes import broadcast_from_first, process_group, write_once
from keras_vit.errors import ConfigError, WriteError
from keras_vit.support.files import failure_named, write_json

_SECONDS = 1.0
"""Shortest time between two writes, each of which waits for the disk."""


class Parts:
    """Writes rows to a file; resumes after the rows of an interrupted run of the same task.

    Use it in a `with` block, which also writes the last rows if an exception ends the block. If
    several processes compute the rows together, the first one writes; after the block the file is
    complete for every process.

    Args:
        path: path of the complete file.
        task: everything that determines the contents, as plain JSON types.

    Attributes:
        inputs: number of inputs that were processed, as the caller counts them.
        count: number of rows.
        notes: the caller's notes on the inputs, as plain JSON types.

    Raises:
        ConfigError: the folder belongs to another task or is damaged, or another process writes.
        WriteError: the file cannot be written.
    """

    def __init__(self, path: Path, task: Mapping[str, Any]) -> None:
        self.inputs = self.count = 0
        self.notes: list[Any] = []
        self._path, self._task = path, json.loads(json.dumps(task))
        self._folder = path.with_name(path.name + ".part")
        self._rows, self._record = self._folder / "rows.npy", self._folder / "record.json"
        self._lock = FileLock(self._folder / "lock", timeout=0)
        self._coming: list[np.ndarray] = []  # rows since the last write
        self._written_inputs = 0
        self._written_at = 0.0

    @property
    def are_written_here(self) -> bool:
        """Whether this process writes the rows."""
        return self._lock.is_locked

    def __enter__(self) -> "Parts":
        write_once(self._open, self._path)
        if process_group()[1] > 1:
            here = [self.inputs, self.count, self.notes]
            self.inputs, self.count, self.notes = broadcast_from_first(here)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if not isinstance(error, WriteError):
                self._write()
        finally:
            self._lock.release()
        if error is None:
            write_once(lambda: None, self._path)  # the other processes wait for the first

    def append(self, rows: np.ndarray, inputs: int, notes: Sequence[Any] = ()) -> None:
        """Adds the rows of the next `inputs` inputs; there may be none."""
        self.inputs += inputs
        self.count += len(rows)
        self.notes += notes
        if not self.are_written_here:
            return
        if len(rows):
            self._coming.append(rows)
        if time.monotonic() - self._written_at > _SECONDS:
            self._write()

    def finish(self) -> None:
        """Moves the npy file of all rows, at least one, to its place; removes the folder."""
        if not self.are_written_here:
            return
        self._write()
        with failure_named(self._rows), self._rows.open("r+b") as file:
            np.lib.format.read_magic(file)
            (_, *sides), order, dtype = np.lib.format.read_array_header_1_0(file)
            file.seek(0)  # NumPy leaves room in the header for any number of rows
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": order}
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (self.count, *sides)})
            _sync(file)
        self._rows.replace(self._path)
        self.clear()

    def clear(self) -> None:
        """Removes the folder."""
        if self.are_written_here:
            self._written_inputs = self.inputs
            shutil.rmtree(self._folder, ignore_errors=True)

    def _open(self) -> None:
        with failure_named(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except Timeout as error:
                raise ConfigError(f"{self._path}: another process is writing it.") from error
        try:
            self._resume()
        except BaseException:
            self._lock.release()
            raise

    def _resume(self) -> None:
        if not self._record.exists():
            self._rows.unlink(missing_ok=True)
            self._count(0)
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            task, size = record["task"], record["bytes"]
            self.inputs, self.count, self.notes = (record[k] for k in ("inputs", "count", "notes"))
            if size > (self._rows.stat().st_size if size else 0):
                raise ValueError(f"{self._rows.name} is cut short")
        except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
            raise ConfigError(f"{self._folder} is damaged ({error}). Remove it.") from error
        if names := [k for k in sorted({*task, *self._task}) if task.get(k) != self._task.get(k)]:
            raise ConfigError(
                f"{self._folder} belongs to another run, which differs in {', '.join(names)}. "
                "Remove it, or write to another path."
            )
        with failure_named(self._rows), self._rows.open("ab") as file:
            file.truncate(size)  # rows that no record counts
        self._written_inputs = self.inputs

    def _count(self, size: int) -> None:
        """Writes the record: the rows that count are the first `size` bytes of their file."""
        counts = {"inputs": self.inputs, "count": self.count, "notes": self.notes}
        write_json(self._record, {"task": self._task, **counts, "bytes": size})

    def _write(self) -> None:
        """Writes the rows since the last write, and then the record that counts them."""
        if not self.are_written_here or self._written_inputs == self.inputs:
            return
        with failure_named(self._rows), self._rows.open("ab") as file:
            for rows in self._coming:
                if not file.tell():
                    np.lib.format.write_array(file, rows[:0], version=(1, 0))
                file.write(rows.tobytes())
            _sync(file)
            size = file.tell()
        self._count(size)
        self._coming, self._written_inputs = [], self.inputs
        self._written_at = time.monotonic()


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
