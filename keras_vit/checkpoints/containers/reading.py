"""What the readers of all formats share: the interface, the checks, and the one error."""

import contextlib
import dataclasses
import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol, Self

import numpy as np

from keras_vit.errors import CheckpointError, KerasViTError, shown
from keras_vit.limits import ARRAYS, EXPANSION, SMALL

PICKLE_ADVICE = (
    "keras_vit never unpickles. Write a safetensors file where the pickle was made: "
    "safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')."
)
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
    """An open file whose header promises arrays, each of which is checked as it is noted down.

    Args:
        path: for messages.
        file: the open file, which is closed with the reader.

    Attributes:
        format: for messages.
        size: of the file in bytes.
        most: how many bytes all arrays together may have.
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
        """Takes an array of the header into `shapes` and `dtypes`.

        Raises:
            CheckpointError: the name is there already, or the header asks for too much.
        """
        if name in self.shapes:
            raise CheckpointError(f"{self.path}: array {shown(name)} stands twice in the file.")
        if len(name) > _LONGEST_NAME:
            raise CheckpointError(
                f"{self.path}: the name {shown(name)} has {len(name):,} characters, expected at "
                f"most {_LONGEST_NAME:,}."
            )
        # An array without numbers costs nothing, but its axes count blocks and classes.
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
        """Turns whatever a library raises over damaged bytes into one error.

        Args:
            name: of the array that is read; None for the header, until the block sets the name
                of what it yields.
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
        except Exception as error:  # zipfile, zlib, json, NumPy and h5py each have their own
            raise CheckpointError(
                f"{self.path}: {reading.fault(self.format)} ({shown(str(error), quoted=False)}). "
                "Fetch or write the file again."
            ) from error

    def close(self) -> None:
        """Closes the file; arrays that were read stay."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@dataclasses.dataclass
class Reading:
    """What is being read: the array of a name, or the header."""

    name: str | None

    def fault(self, format: str) -> str:
        """Returns what is wrong where reading fails."""
        if self.name is None:
            return f"not a complete {format} file"
        return f"array {shown(self.name)} is damaged"


class MappedFile:
    """A file mapped into memory, of which only what was read last is kept there."""

    def __init__(self, file: IO[bytes]) -> None:
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.bytes = memoryview(self._map)
        self._last: tuple[int, int] | None = None

    def read(self, start: int, end: int) -> memoryview:
        """Returns bytes of the file itself, and gives back the memory of those before.

        A view of those that lives on is read from the disk anew.
        """
        if self._last is not None and hasattr(mmap, "MADV_DONTNEED"):
            first, last = self._last
            first -= first % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
        self._last = start, end
        return self.bytes[start:end]


class _JoinedReader:
    """Several open files as one. They are closed by whoever opened them."""

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
    """Returns open files as one reader; each one's names get a prefix."""
    return _JoinedReader(path, parts)
