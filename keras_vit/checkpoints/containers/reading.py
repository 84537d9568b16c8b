"""The interface, checks and errors of the readers of all formats."""

import contextlib
import dataclasses
import math
import mmap
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Self

import numpy as np

from keras_vit.errors import CheckpointError, KerasViTError, shown
from keras_vit.support.limits import ARRAYS, EXPANSION, SMALL

_LONGEST_NAME = 1000
_MOST_AXES = 32


class Reader:
    """Reads arrays by name; a context manager.

    Args:
        path: path for messages.

    Attributes:
        shapes, dtypes: shape and type of each array, by name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}

    def read(self, name: str) -> np.ndarray:
        """Returns one array. Raises `CheckpointError` if its bytes are damaged or absent."""
        raise CheckpointError(f"{self.path}: only its header was fetched.")

    def close(self) -> None:
        """Closes the reader's files; arrays that were read stay valid."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class FileReader(Reader):
    """An open file of arrays; `note` checks each array of its header.

    Args:
        path: path of the file, for messages.
        file: the open file; the reader closes it.

    Attributes:
        format: name of the format, for messages.
        size: size of the file in bytes.
        most: most bytes that all arrays together may have.
        at: name of the array that is being read, for messages; None for the header.
    """

    format: str

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(path)
        self.size = os.fstat(file.fileno()).st_size
        self.most = max(SMALL, EXPANSION.value * self.size)
        self._file = file
        self.at: str | None = None
        self._promised = 0

    def note(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Adds an array of the header to `shapes` and `dtypes`.

        Raises:
            CheckpointError: the name occurs twice, or the array exceeds a limit.
        """
        if name in self.shapes:
            raise CheckpointError(f"{self.path}: array {shown(name)} is in the file twice.")
        if len(name) > _LONGEST_NAME:
            raise CheckpointError(
                f"{self.path}: the name {shown(name)} has {len(name):,} characters, expected at "
                f"most {_LONGEST_NAME:,}."
            )
        # Even in an empty array, an axis may be taken for the number of blocks or classes.
        if len(shape) > _MOST_AXES or any(not 0 <= axis <= self.most for axis in shape):
            raise CheckpointError(
                f"{self.path}: array {shown(name)} has the shape {shown(str(shape))}, which is "
                f"impossible in a file of {self.size:,} bytes."
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
    def damage(self, name: str | None = None) -> Iterator[None]:
        """Turns any exception of a library about damaged bytes into a `CheckpointError`.

        Args:
            name: name of the array that is read; None for the header, until the block sets `at`.
        """
        self.at = name
        try:
            yield
        except KerasViTError:
            raise
        except Exception as error:  # zipfile, zlib, json, NumPy and h5py raise many types
            part = f"array {shown(self.at)} is damaged"
            fault = f"not a complete {self.format} file" if self.at is None else part
            if isinstance(error, MemoryError):
                fault += ", or needs more memory than available."
            else:
                reason = shown(str(error), quoted=False)
                fault += f" ({reason}). Fetch or write the file again."
            raise CheckpointError(f"{self.path}: {fault}") from error

    def close(self) -> None:
        self._file.close()


class MappedFile:
    """A memory-mapped file that keeps only the last range of bytes in physical memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.bytes = memoryview(self._map)
        self._last: tuple[int, int] | None = None

    def read(self, start: int, end: int) -> memoryview:
        """Returns a range of the mapped bytes, and releases the memory of the previous range.

        Views of the previous range stay valid: their bytes are read from the disk again.
        """
        if self._last is not None and hasattr(mmap, "MADV_DONTNEED"):
            first, last = self._last
            first -= first % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
        self._last = start, end
        return self.bytes[start:end]


_Axes = tuple[int, ...] | None


class _RenamedReader(Reader):
    """The arrays of open files under other names. The caller that opened the files closes them.

    Args:
        path: path for messages.
        places: new name, the reader that has the array, its name there, and the permutation of its
            axes; None for the same order.
        own: reader that is closed with this one.
    """

    def __init__(
        self,
        path: Path,
        places: Iterable[tuple[str, Reader, str, _Axes]],
        own: Reader | None = None,
    ) -> None:
        super().__init__(path)
        self._own = own
        self._places: dict[str, tuple[Reader, str, _Axes]] = {}
        for name, reader, inner, axes in places:
            if name in self._places:
                raise CheckpointError(
                    f"{path}: array {shown(name)} is in two files, or has two names."
                )
            self._places[name] = reader, inner, axes
            shape = reader.shapes[inner]
            self.shapes[name] = shape if axes is None else tuple(shape[axis] for axis in axes)
            self.dtypes[name] = reader.dtypes[inner]
        ARRAYS.check(len(self.shapes), path, CheckpointError)

    def read(self, name: str) -> np.ndarray:
        reader, inner, axes = self._places[name]
        array = reader.read(inner)
        return array if axes is None else array.transpose(axes)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


def joined(path: Path, parts: list[tuple[str, Reader]]) -> Reader:
    """Returns one reader for several files; `parts` pairs a prefix of names with each reader."""
    return _RenamedReader(path, ((p + name, r, name, None) for p, r in parts for name in r.shapes))


def renamed(reader: Reader, names: Iterable[tuple[str, str]]) -> Reader:
    """Returns a reader of some arrays of another; each pair has the new name and the name there."""
    return _RenamedReader(reader.path, ((new, reader, name, None) for new, name in names))


def transposed(reader: Reader, places: Iterable[tuple[str, str, _Axes]]) -> Reader:
    """Returns a reader that replaces another, with other names and orders of axes.

    Each place has the new name, the old name, and the permutation of the axes; None for the same
    order.
    """
    found = ((new, reader, name, axes) for new, name, axes in places)
    return _RenamedReader(reader.path, found, own=reader)


@dataclasses.dataclass(frozen=True)
class ComputedArray:
    """An array that is computed when it is read.

    Args:
        shape, dtype: shape and type of the array.
        read: function that returns the array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]


_Array = ComputedArray | np.ndarray


class _ComputingReader(Reader):
    def __init__(
        self, reader: Reader, arrays: Mapping[str, _Array], without: Container[str]
    ) -> None:
        super().__init__(reader.path)
        self._reader, self._arrays = reader, arrays
        for name in reader.shapes:
            if name not in without:
                self.shapes[name], self.dtypes[name] = reader.shapes[name], reader.dtypes[name]
        for name, array in arrays.items():
            self.shapes[name], self.dtypes[name] = array.shape, array.dtype

    def read(self, name: str) -> np.ndarray:
        array = self._arrays.get(name)
        if isinstance(array, np.ndarray):
            return array
        return self._reader.read(name) if array is None else array.read()


def computed(reader: Reader, arrays: Mapping[str, _Array], without: Container[str] = ()) -> Reader:
    """Returns a reader of the arrays of another, some of which are replaced, added or removed."""
    return _ComputingReader(reader, arrays, without)


def siblings(reader: Reader, name: str) -> Reader:
    """Returns an array and those with the same prefix, under their names after the prefix."""
    prefixes = [n.removesuffix(name) for n in reader.shapes if f".{n}".endswith(f".{name}")]
    if len(prefixes) != 1:
        return reader
    (prefix,) = prefixes
    below = [n for n in reader.shapes if n.startswith(prefix)]
    return renamed(reader, ((n.removeprefix(prefix), n) for n in below))
