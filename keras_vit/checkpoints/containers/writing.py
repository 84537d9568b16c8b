"""Helpers of the writers of all formats."""

import contextlib
import os
from collections.abc import Iterator
from typing import IO

import numpy as np

from keras_vit.config.weights.axes import in_order
from keras_vit.support.files import replace_file


def view_bytes(array: np.ndarray) -> memoryview:
    """Returns the values of an array in C order, as bytes."""
    return in_order(array).reshape(-1).view(np.uint8).data


@contextlib.contextmanager
def open_new(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yields a new file that becomes `path` on success."""
    with replace_file(path) as temporary, temporary.open("xb") as file:
        yield file
