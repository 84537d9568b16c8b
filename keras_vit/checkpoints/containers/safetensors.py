"""Reads and writes safetensors: a JSON header of names, types, shapes and offsets, and the data."""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.containers.reading import FileReader, MappedFile
from keras_vit.checkpoints.containers.writing import open_new, view_bytes
from keras_vit.errors import CheckpointError, shown
from keras_vit.support.limits import HEADER_BYTES

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

    The safetensors library makes the same checks, but it takes a path and would open the file a
    second time. The arrays must be contiguous, without gap or overlap, from the end of the
    header to the end of the file.
    """

    format = "safetensors"

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(path, file)
        length = int.from_bytes(file.read(8), "little")
        if length > self.size - 8:
            raise CheckpointError(
                f"{path}: not a complete safetensors file: its header should have {length:,} "
                f"bytes, but only {self.size - 8:,} follow. Fetch or write it again."
            )
        HEADER_BYTES.check(length, path, CheckpointError)
        self._places: dict[str, tuple[int, int]] = {}
        self._data = 8 + length
        with self.damage():
            header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_refuse_twins)
            header.pop("__metadata__", None)
            for name, entry in header.items():
                self.at = name
                self._add(name, entry)
            self.at = None
            self._check_places()
            self._mapped = MappedFile(file)

    def _add(self, name: str, entry: Any) -> None:
        """Adds an array of the header, with the positions of its first and last byte."""
        shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
        dtype = SAFETENSORS_DTYPES.get(entry["dtype"])
        if dtype is None:
            raise CheckpointError(
                f"{self.path}: array {shown(name)}: arrays of type {shown(entry['dtype'])} cannot "
                "be weights."
            )
        if any(type(number) is not int or number < 0 for number in (*shape, start, end)):
            raise ValueError("expected whole numbers for shape and data_offsets")
        self.note(name, shape, dtype)
        if math.prod(shape) * dtype.itemsize != end - start:
            raise ValueError(
                f"its shape {shape} of {dtype} needs {math.prod(shape) * dtype.itemsize} bytes, "
                f"but its offsets span {end - start}"
            )
        self._places[name] = start, end

    def _check_places(self) -> None:
        reached = 0
        for name, (start, end) in sorted(self._places.items(), key=lambda item: item[1]):
            if start != reached:
                fault = "overlaps the one before" if start < reached else "leaves a gap before it"
                raise ValueError(f"array {shown(name)} {fault}")
            reached = end
        if self._data + reached != self.size:
            raise ValueError(
                f"its header describes {reached} bytes, but {self.size - self._data} follow"
            )

    def read(self, name: str) -> np.ndarray:
        start, end = self._places[name]
        data = self._mapped.read(self._data + start, self._data + end)
        return np.ndarray(self.shapes[name], self.dtypes[name], data)


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object; raises `ValueError` for duplicate keys."""
    content = dict(pairs)
    if len(content) < len(pairs):
        (twin, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{shown(twin)} is in the header twice")
    return content


def write_safetensors(
    path: str | os.PathLike[str],
    specs: Iterable[tuple[str, tuple[int, ...], np.dtype]],
    arrays: Iterable[np.ndarray],
    metadata: Mapping[str, str],
) -> None:
    """Writes arrays as safetensors, one at a time; if that fails, no file is written.

    The safetensors library needs all arrays in memory. This function writes the same bytes if the
    arrays are sorted by decreasing size of their dtype, then by name; the header is padded to a
    multiple of 8.

    Args:
        path: path of the file.
        specs: name, shape and type of every array.
        arrays: the arrays, in the same order.
        metadata: strings for the header.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, shape, dtype in specs:
        end = offset + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": (offset, end)}
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open_new(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays:
            file.write(view_bytes(array))
