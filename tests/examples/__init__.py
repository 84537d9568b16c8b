"""Tests of what the examples promise; `make docs` runs the gallery too."""

import runpy
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples"


def load(name: str) -> dict[str, Any]:
    """The names of a program below `examples/`."""
    return runpy.run_path(str(FOLDER / name))
