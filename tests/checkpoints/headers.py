"""Stand-ins for a file: names, shapes and types of arrays, with values or without."""

import json
import math
from pathlib import Path

import numpy as np

from keras_vit.checkpoints.containers import Reader

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8}


class Headers(Reader):
    """A reader of arrays of float32 that have names and shapes, and values if some are given."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], arrays: dict | None = None) -> None:
        super().__init__(Path("headers"))
        self.shapes.update(shapes)
        self.dtypes.update(dict.fromkeys(shapes, np.dtype("float32")))
        self._arrays = arrays or {}

    def read(self, name: str) -> np.ndarray:
        return self._arrays[name]


def write_sparse(path: Path, arrays: dict) -> None:
    """Writes the header of a safetensors file, and a hole in place of the numbers."""
    header, end = {}, 0
    for name, (dtype, shape) in arrays.items():
        start, end = end, end + math.prod(shape) * _BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
