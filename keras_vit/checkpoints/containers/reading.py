"""The common part of the readers of all formats: interface, checks, and errors."""

import contextlib
import dataclasses
import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol, Self

import numpy as np

from keras_vit.environment.limits import ARRAYS, EXPANSION, SMALL
from keras_vit.errors import CheckpointError, KerasViTError, shown

_LONGEST_NAME = 1000
_MOST_AXES = 32


class Reader(Protocol):
    """An open file of arrays. Use as a context manager."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]

    def read(self, name: str) -> np.ndarray:
        """Returns one array. Raises `CheckpointError` if its bytes are damaged."""
        ...

    def __enter__(self) -> "Reader": ...

    def __exit__(self, *exc_info: object) -> None: ...


class FileReader:
    """An open file of arrays; `note` checks each array of its header.

    Args:
        path: path of the file, for messages.
        file: the open file; the reader closes it.

    Attributes:
        format: name of the format, for messages.
        size: size of the file in bytes.
        most: most bytes that all arrays together may have.
    """

    format: str

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}
        self.size = os.fstat(file.fileno()).st_size
        self.most = max(SMALL, EXPANSION.value * self.size)
        self._file = file
        self._promised = 0

    def note(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Adds an array of the header to `shapes` and `dtypes`.

        Raises:
            CheckpointError: the name occurs twice, or the array exceeds a limit.
        """
        if name in self.shapes:
            raise CheckpointError(f"{self.path}: array {shown(name)} stands twice in the file.")
        if len(name) > _LONGEST_NAME:
            raise CheckpointError(
                f"{self.path}: the name {shown(name)} has {len(name):,} characters, expected at "
                f"most {_LONGEST_NAME:,}."
            )
        # Even in an array without numbers an axis may be the number of blocks or classes.
        if len(shape) > _MOST_AXES or any(not 0 <= axis <= self.most for axis in shape):
            raise CheckpointError(
                f"{self.path}: array {shown(name)} has the shape {shown(str(shape))}, which no "
                f"array of a file of {self.size:,} bytes has."
            )
        ARRAYS.check(len(self.shapes) + 1, self.path, CheckpointError)
        self._promised += math.prod(shape) * dtype.itemsize
        if self._promised > self.most:
            EXPANSION.check(
                math.ceil(self._promised / max(1, self.size)), self.path, CheckpointError
            )
        self.shapes[name] = shape
        self.dtypes[name] = dtype

    @contextlib.contextmanager
    def damage(self, name: str | None = None) -> Iterator["Reading"]:
        """Turns any exception of a library over damaged bytes into a `CheckpointError`.

        Args:
            name: name of the array that is read; None for the header, until the block sets
                the name of the `Reading` that the context yields.
        """
        reading = Reading(name)
        try:
            yield reading
        except KerasViTError:
            raise
        except MemoryError as error:
            raise CheckpointError(
                f"{self.path}: {reading.fault(self.format)}, or needs more memory than there is."
            ) from error
        except Exception as error:  # zipfile, zlib, json, NumPy and h5py raise many types
            raise CheckpointError(
                f"{self.path}: {reading.fault(self.format)} ({shown(str(error), quoted=False)}). "
                "Fetch or write the file again."
            ) from error

    def close(self) -> None:
        """Closes the file; arrays that were read remain valid."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@dataclasses.dataclass
class Reading:
    """The name of the array that is being read; None for the header."""

    name: str | None

    def fault(self, format: str) -> str:
        """Returns the description of a failure to read, for a message."""
        if self.name is None:
            return f"not a complete {format} file"
        return f"array {shown(self.name)} is damaged"


class MappedFile:
    """A file mapped into memory that keeps only the last range of bytes read in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.bytes = memoryview(self._map)
        self._last: tuple[int, int] | None = None

    def read(self, start: int, end: int) -> memoryview:
        """Returns a range of the mapped bytes, and releases the memory of the previous range.

        A view of the previous range stays valid: its bytes are read from the disk again.
        """
        if self._last is not None and hasattr(mmap, "MADV_DONTNEED"):
            first, last = self._last
            first -= first % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
        self._last = start, end
        return self.bytes[start:end]


class _JoinedReader:
    """Several open files as one. The caller that opened the files closes them."""

    def __init__(self, path: Path, parts: list[tuple[str, Reader]]) -> None:
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}
        self._part_of: dict[str, tuple[Reader, str]] = {}
        for prefix, part in parts:
            for name, shape in part.shapes.items():
                if prefix + name in self._part_of:
                    raise CheckpointError(
                        f"{path}: array {shown(prefix + name)} stands in two files."
                    )
                self._part_of[prefix + name] = (part, name)
                self.shapes[prefix + name] = shape
                self.dtypes[prefix + name] = part.dtypes[name]
        ARRAYS.check(len(self.shapes), path, CheckpointError)

    def read(self, name: str) -> np.ndarray:
        part, inner = self._part_of[name]
        return part.read(inner)

    def __enter__(self) -> "_JoinedReader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def joined(path: Path, parts: list[tuple[str, Reader]]) -> Reader:
    """Returns one reader of all files; `parts` pairs each reader with a prefix of its names."""
    return _JoinedReader(path, parts)


class _UnwrappedReader:
    """An open file without a prefix of its names. The caller that opened the file closes it."""

    def __init__(self, reader: Reader, prefix: str) -> None:
        self.path = reader.path
        self.shapes = {name.removeprefix(prefix): s for name, s in reader.shapes.items()}
        self.dtypes = {name.removeprefix(prefix): d for name, d in reader.dtypes.items()}
        self._reader, self._prefix = reader, prefix

    def read(self, name: str) -> np.ndarray:
        return self._reader.read(self._prefix + name)

    def __enter__(self) -> "_UnwrappedReader":
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def unwrapped(reader: Reader, prefix: str) -> Reader:
    """Returns a reader that removes the prefix, which all names in the file have, from names."""
    return _UnwrappedReader(reader, prefix)
