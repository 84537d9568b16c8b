"""A file of which only names, shapes and types exist."""

import dataclasses
from pathlib import Path

import numpy as np


@dataclasses.dataclass
class Headers:
    """A reader without numbers behind its names."""

    shapes: dict[str, tuple[int, ...]]
    path: Path = Path("headers")

    @property
    def dtypes(self) -> dict[str, np.dtype]:
        """float32 throughout."""
        return dict.fromkeys(self.shapes, np.dtype("float32"))
