"""Rows of one array that are computed in steps and kept on the disk until they are complete.

For a file `NAME` they lie in a folder `NAME.part`: `task.json` says what the rows are, and each npz
file holds the rows of some steps. A process killed at any moment leaves whole files, and the next
process with the same task continues behind them.
"""

import json
import os
import shutil
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from keras_vit.distribution.processes import by_one, from_the_first, together
from keras_vit.errors import ConfigError, WriteError
from keras_vit.files import failure_named, write_json, written_beside

_SECONDS = 1.0
"""Least time between two files: each waits for the disk."""


class Parts:
    """Appends rows behind those that an interrupted run of the same task has left.

    Use it in a `with` block, which also writes the last rows if an exception ends the block. Of
    several processes that compute the rows together, the first writes; behind the block the file
    is complete for all of them.

    Args:
        path: path of the complete file.
        task: everything that determines the contents, as plain JSON types.

    Attributes:
        inputs: number of inputs that were processed, as the caller counts them.
        count: number of rows.
        notes: the caller's notes on the inputs, as plain JSON types.

    Raises:
        ConfigError: the folder belongs to another task or is damaged, or another process writes.
        WriteError: the system refused to write.
    """

    def __init__(self, path: Path, task: Mapping[str, Any]) -> None:
        self.inputs = self.count = 0
        self.notes: list[Any] = []
        self._path, self._task = path, json.loads(json.dumps(task))
        self._folder = path.with_name(path.name + ".part")
        self._lock = FileLock(self._folder / "lock", timeout=0)
        self._files: list[Path] = []
        self._rows: list[np.ndarray] = []  # since the last file
        self._saved: tuple[int, int] = (0, 0)  # inputs and notes in files
        self._written = 0.0

    @property
    def are_written_here(self) -> bool:
        """Whether this process writes the rows."""
        return self._lock.is_locked

    def __enter__(self) -> "Parts":
        by_one(self._open, self._path)
        if together()[1] > 1:
            here = [self.inputs, self.count, self.notes]
            self.inputs, self.count, self.notes = from_the_first(here)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not isinstance(error, WriteError):
                self._write()
        finally:
            self._lock.release()
        if error is None:
            by_one(lambda: None, self._path)  # the other processes wait for the first

    def append(self, rows: np.ndarray, inputs: int, notes: Sequence[Any] = ()) -> None:
        """Adds the rows of the next `inputs` inputs; there may be none."""
        self.inputs += inputs
        self.count += len(rows)
        self.notes += notes
        if not self.are_written_here:
            return
        if len(rows):
            self._rows.append(rows)
        if time.monotonic() - self._written > _SECONDS:
            self._write()

    def join(self) -> Path:
        """Returns a new npy file of all rows, at least one; the caller renames it."""
        self._write()
        whole = self._folder / "whole.npy"
        with failure_named(whole), whole.open("wb") as file:
            for part in self._files:
                with np.load(part) as arrays:
                    if "rows" not in arrays:
                        continue
                    rows = arrays["rows"]
                if not file.tell():
                    header = np.lib.format.header_data_from_array_1_0(rows)
                    header["shape"] = (self.count, *rows.shape[1:])
                    np.lib.format.write_array_header_1_0(file, header)
                file.write(rows.tobytes())
            _sync(file)
        return whole

    def clear(self) -> None:
        """Removes the folder."""
        if self.are_written_here:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _open(self) -> None:
        if self._folder.is_file():
            raise ConfigError(f"{self._folder}: an unfinished run of version 0.1.0. Remove it.")
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
        record = self._folder / "task.json"
        if not record.exists():
            write_json(record, self._task)
        try:
            task = json.loads(record.read_text(encoding="utf-8"))
            for file in sorted(self._folder.glob("*.npz")):
                if int(file.stem) != self.inputs:
                    break  # a file before it is missing
                with np.load(file) as arrays:
                    inputs, count, notes = json.loads(str(arrays["record"]))
                self.inputs += inputs
                self.count += count
                self.notes += notes
                self._files.append(file)
            self._saved = self.inputs, len(self.notes)
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{self._folder} is damaged ({error}). Remove it.") from error
        if names := [k for k in sorted({*task, *self._task}) if task.get(k) != self._task.get(k)]:
            raise ConfigError(
                f"{self._folder} belongs to another run, which differs in {', '.join(names)}. "
                "Remove it, or write to another path."
            )

    def _write(self) -> None:
        """Writes the rows since the last file to a file of their own."""
        inputs, notes = self._saved
        if inputs == self.inputs or not self.are_written_here:
            return
        file = self._folder / f"{inputs:012}.npz"
        count = sum(map(len, self._rows))
        record = json.dumps([self.inputs - inputs, count, self.notes[notes:]])
        arrays: Any = {"rows": np.concatenate(self._rows)} if self._rows else {}
        with written_beside(file) as temporary, temporary.open("wb") as stream:
            np.savez(stream, record=np.array(record), **arrays)
            _sync(stream)
        self._files.append(file)
        self._rows, self._saved = [], (self.inputs, len(self.notes))
        self._written = time.monotonic()


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
