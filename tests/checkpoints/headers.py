"""A stand-in for a file, with names, shapes and dtypes of arrays and no values."""

import dataclasses
from pathlib import Path

import numpy as np


@dataclasses.dataclass
class Headers:
    """A reader of arrays that have names and shapes, and no values."""

    shapes: dict[str, tuple[int, ...]]
    path: Path = Path("headers")

    @property
    def dtypes(self) -> dict[str, np.dtype]:
        """float32 for every array."""
        return dict.fromkeys(self.shapes, np.dtype("float32"))
