"""Flax's serialisation: msgpack, whose extension 1 is an array as shape, type and bytes.

The library msgpack would copy every array into memory. This reader walks over the headers, notes
where the bytes of each array lie, and reads them on demand.
"""

import math
from pathlib import Path
from typing import IO, Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from keras_vit.checkpoints.containers.reading import FileReader, MappedFile
from keras_vit.support.limits import ARRAYS

_DEEPEST = 32
"""Most levels of maps inside maps; transformers' models need eight."""
_ITEMS_PER_ARRAY = 20
"""Most values and keys together, for each array that a file may have."""
_ARRAY = 1
"""Flax's code of the extension that is an array."""
_LENGTHS = {
    **{0xC4 + k: ("bytes", 1 << k) for k in range(3)},
    **{0xC7 + k: ("extension", 1 << k) for k in range(3)},
    **{0xD9 + k: ("text", 1 << k) for k in range(3)},
    **{0xDC + k: ("list", 2 << k) for k in range(2)},
    **{0xDE + k: ("map", 2 << k) for k in range(2)},
}
"""First byte of a value -> its kind, and the number of bytes that state its length."""
_FIXED = {
    **{0x80 + k: ("map", k) for k in range(16)},
    **{0x90 + k: ("list", k) for k in range(16)},
    **{0xA0 + k: ("text", k) for k in range(32)},
    **{0xCC + k: ("number", 1 << k) for k in range(4)},
    **{0xD0 + k: ("other", 1 << k) for k in range(4)},
    **{0xD4 + k: ("extension", 1 << k) for k in range(5)},
    **{0xCA: ("other", 4), 0xCB: ("other", 8), 0xC0: ("other", 0)},
    **{0xC2: ("other", 0), 0xC3: ("other", 0)},
}
"""First byte of a value -> its kind, and its length: items of a list or map, bytes otherwise."""


class FlaxReader(FileReader):
    """An open file of Flax. The name of an array is the keys that lead to it, joined by `/`."""

    format = "Flax msgpack"

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(path, file)
        self._mapped = MappedFile(file)
        self._places: dict[str, slice] = {}
        self._items = 0
        with self.damage():
            _, end = self._value(0)
            if end != self.size:
                raise ValueError(f"{self.size - end} bytes follow its end")

    def _value(self, at: int, name: str = "", depth: int = 0) -> tuple[Any, int]:
        """Returns the value at a position, and the position behind it; notes the arrays in it.

        The place of bytes stands for them. Values that describe no array are returned as None.
        """
        self._items += 1
        if depth > _DEEPEST or self._items > _ITEMS_PER_ARRAY * ARRAYS.value:
            raise ValueError("too many or too deeply nested values")
        kind, size, at = self._head(at)
        if kind == "map":
            for _ in range(size):
                key, at = self._value(at, depth=depth + 1)
                _, at = self._value(at, f"{name}/{key}" if name else str(key), depth + 1)
            return None, at
        if kind == "list":
            values = []
            for _ in range(size):
                value, at = self._value(at, name, depth + 1)
                values.append(value)
            return values, at
        place = slice(at, at + size)
        if place.stop > self.size:
            raise ValueError("it ends inside of a value")
        if kind == "extension" and self._mapped.bytes[at] == _ARRAY:
            self._add(name, at + 1)
        value = place if kind == "bytes" else None
        if kind == "number":
            value = int.from_bytes(self._mapped.bytes[place], "big")
        elif kind == "text":
            value = str(self._mapped.bytes[place], "utf-8")
        return value, place.stop

    def _head(self, at: int) -> tuple[str, int, int]:
        """Returns kind, length and place of the content of a value."""
        data = self._mapped.bytes
        first = data[at]
        if first < 0x80:  # the byte is the number
            return "number", 1, at
        if first >= 0xE0:  # a small negative number
            return "other", 0, at + 1
        at += 1
        if first in _FIXED:
            kind, size = _FIXED[first]
        else:
            kind, width = _LENGTHS[first]
            size, at = int.from_bytes(data[at : at + width], "big"), at + width
        return kind, size + (kind == "extension"), at  # the code of an extension is a byte

    def _add(self, name: str, at: int) -> None:
        self.at = name
        (shape, word, place), _ = self._value(at)
        dtype = np.dtype(word)
        if dtype.kind not in "biuf" and word != "bfloat16":
            raise ValueError(f"its type is {dtype}")
        if any(type(axis) is not int for axis in shape):
            raise ValueError(f"its shape is {shape}")
        self.note(name, tuple(shape), dtype)
        if math.prod(shape) * dtype.itemsize != place.stop - place.start:
            raise ValueError(f"{place.stop - place.start} bytes are no {dtype} of {shape}")
        self._places[name] = place
        self.at = None

    def read(self, name: str) -> np.ndarray:
        place = self._places[name]
        data = self._mapped.read(place.start, place.stop)
        return np.ndarray(self.shapes[name], self.dtypes[name], data)
