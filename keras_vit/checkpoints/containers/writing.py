"""The common part of the writers of all formats: arrays in parts, and unfinished files."""

import contextlib
import itertools
import math
import os
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

import numpy as np

from keras_vit.files import written_beside
from keras_vit.weights.axes import in_order


class Part(NamedTuple):
    """A piece of an array on its way into a file; the pieces of one array follow each other.

    Args:
        name, shape: name and shape of the whole array.
        array: the next numbers of the whole array in C order, in any shape.
    """

    name: str
    shape: tuple[int, ...]
    array: np.ndarray

    @property
    def bytes(self) -> memoryview:
        """The numbers in C order, as bytes."""
        return in_order(self.array).reshape(-1).view(np.uint8).data


def parts_of(arrays: Iterable[tuple[str, np.ndarray]]) -> Iterator[Part]:
    """Yields whole arrays as parts."""
    return (Part(name, array.shape, array) for name, array in arrays)


def whole(parts: Iterable[Part]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each name with its complete array, which is joined from the parts."""
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
