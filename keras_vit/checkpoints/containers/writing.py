"""What the writers of all formats share: arrays in parts, and a place for an unfinished file."""

import contextlib
import itertools
import math
import os
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

import numpy as np

from keras_vit.checkpoints.axes import in_order
from keras_vit.files import written_beside


class Part(NamedTuple):
    """A piece of an array on its way into a file; the pieces of one array follow each other.

    Args:
        name, shape: of the whole array.
        array: the next of its numbers in C order; its own shape does not matter.
    """

    name: str
    shape: tuple[int, ...]
    array: np.ndarray

    @property
    def bytes(self) -> memoryview:
        """The numbers as they stand in a file."""
        return in_order(self.array).reshape(-1).view(np.uint8).data


def parts_of(arrays: Iterable[tuple[str, np.ndarray]]) -> Iterator[Part]:
    """Yields whole arrays as parts."""
    return (Part(name, array.shape, array) for name, array in arrays)


def whole(parts: Iterable[Part]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names and arrays, each put together from its parts."""
    for (name, shape), pieces in itertools.groupby(parts, lambda part: (part.name, part.shape)):
        array = next(pieces).array
        if (filled := array.size) < math.prod(shape):
            joined = np.empty(math.prod(shape), array.dtype)
            joined[:filled] = array.reshape(-1)
            for _, _, piece in pieces:
                joined[filled : filled + piece.size] = piece.reshape(-1)
                filled += piece.size
            array = joined
        yield name, array.reshape(shape)


@contextlib.contextmanager
def opened_beside(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yields a new file that becomes `path` on success."""
    with written_beside(path) as temporary, temporary.open("xb") as file:
        yield file
