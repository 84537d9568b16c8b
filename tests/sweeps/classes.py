"""Sweeps: a library's own model with a random number in every array, beside keras_vit's.

    python -m tests.sweeps.classes transformers
    python -m tests.sweeps.classes keras_hub

A sweep is a module of this package with `CASES`: a name, and a function that writes the library's
checkpoint into a folder and returns images, NHWC, and the library's output for them. The table
that is printed has a line for every case: equal, different, or refused and why.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from keras_vit import CheckpointError, checkpoints
from tests.family_goldens import relative_error
from tests.helpers import numpy_of

TOLERANCE = 1e-5
"""Of the largest value."""

Case = Callable[[Path], tuple[np.ndarray, np.ndarray]]


def outcome(case: Case) -> str:
    """Runs a case; returns `"equal (3.1e-07)"`, `"different (...)"` or `"refused: ..."`."""
    with TemporaryDirectory() as folder:
        image, want = case(Path(folder))
        try:
            model = checkpoints.load(folder, image_size=image.shape[1:3])
        except CheckpointError as refusal:
            return f"refused: {str(refusal).partition(': ')[2]}"
        error = relative_error(numpy_of(model(image)), want)
    return f"{'equal' if error <= TOLERANCE else 'different'} ({error:.1e})"


def table(cases: Mapping[str, Case]) -> dict[str, str]:
    """Returns the outcome of every case by its name."""
    return {name: outcome(case) for name, case in cases.items()}


def main(library: str) -> int:
    """Prints the table of a library; returns 1 if a case differs."""
    found = table(importlib.import_module(f"tests.sweeps.{library}").CASES)
    print("| model | outcome |\n|---|---|")
    for name, text in found.items():
        print(f"| {name} | {text} |")
    for kind in ("equal", "different", "refused"):
        print(f"{sum(text.startswith(kind) for text in found.values())} {kind}")
    return int(any(text.startswith("different") for text in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
