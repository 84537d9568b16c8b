"""safetensors: a JSON header of names, types, shapes and places, and the bytes after it."""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.containers.reading import FileReader, MappedFile
from keras_vit.checkpoints.containers.writing import Part, opened_beside
from keras_vit.errors import CheckpointError, shown
from keras_vit.limits import HEADER_BYTES

SAFETENSORS_DTYPES = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype("float16"),
    "F32": np.dtype("float32"),
    "F64": np.dtype("float64"),
    "I64": np.dtype("int64"),
    "I32": np.dtype("int32"),
    "U8": np.dtype("uint8"),
    "BOOL": np.dtype("bool"),
}
_NAMES = {dtype: name for name, dtype in SAFETENSORS_DTYPES.items()}


class SafetensorsReader(FileReader):
    """An open safetensors file, mapped into memory after its header was checked.

    The library's own reader checks the same, but opens a path, a second time. As there, the bytes
    of the arrays follow each other without a gap and without an overlap, from the end of the
    header to the end of the file.
    """

    format = "safetensors"

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(path, file)
        length = int.from_bytes(file.read(8), "little")
        if length > self.size - 8:
            raise CheckpointError(
                f"{path}: not a complete safetensors file: its header says it has {length:,} "
                f"bytes, and {self.size - 8:,} are there. Fetch or write it again."
            )
        HEADER_BYTES.check(length, path, CheckpointError)
        with self.damage():
            header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_without_twins)
            header.pop("__metadata__", None)
            self._places = {name: self._place(name, entry) for name, entry in header.items()}
            self._data = 8 + length
            self._check_places()
            self._mapped = MappedFile(file)

    def _place(self, name: str, entry: Any) -> tuple[int, int]:
        """Notes an array of the header; returns where it begins and ends behind the header."""
        with self.damage(name):
            shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
            if entry["dtype"] not in SAFETENSORS_DTYPES:
                raise CheckpointError(
                    f"{self.path}: array {shown(name)}: arrays of type "
                    f"{shown(str(entry['dtype']))} hold no weights."
                )
            dtype = SAFETENSORS_DTYPES[entry["dtype"]]
            if any(type(number) is not int or number < 0 for number in (*shape, start, end)):
                raise ValueError("expected whole numbers for shape and data_offsets")
            self.note(name, shape, dtype)
            if math.prod(shape) * dtype.itemsize != end - start:
                raise ValueError(
                    f"its shape {shape} of {dtype} needs {math.prod(shape) * dtype.itemsize} "
                    f"bytes, its place has {end - start}"
                )
        return start, end

    def _check_places(self) -> None:
        reached = 0
        for name, (start, end) in sorted(self._places.items(), key=lambda item: item[1]):
            if start != reached:
                fault = "overlaps the one before" if start < reached else "leaves a gap before it"
                raise ValueError(f"the place of array {shown(name)} {fault}")
            reached = end
        if self._data + reached != self.size:
            raise ValueError(
                f"its header tells of {reached} bytes, {self.size - self._data} follow"
            )

    def read(self, name: str) -> np.ndarray:
        start, end = (self._data + offset for offset in self._places[name])
        with self.damage(name):
            return np.ndarray(self.shapes[name], self.dtypes[name], self._mapped.read(start, end))


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; one that says two things of a name is damaged."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (twin, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{shown(twin)} stands twice in its header")
    return found


def write_safetensors(
    path: str | os.PathLike[str],
    specs: Iterable[tuple[str, tuple[int, ...], np.dtype]],
    read: Callable[[list[str]], Iterable[Part]],
    metadata: Mapping[str, str],
) -> None:
    """Writes arrays as safetensors, one part at a time, whole or not at all.

    The library's own writer wants all arrays in memory. The bytes are the same as
    its: arrays sorted by size of their type and by name, the header padded to 8.

    Args:
        path: of the file.
        specs: name, shape and type of every array.
        read: yields the parts of the arrays in the order of the names that it is given.
        metadata: strings for the header.
    """
    ordered = sorted(specs, key=lambda spec: (-spec[2].itemsize, spec[0]))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, shape, dtype in ordered:
        end = offset + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": (offset, end)}
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with opened_beside(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for part in read([name for name, _, _ in ordered]):
            file.write(part.bytes)
