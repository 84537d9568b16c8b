"""The sweeps over classes: a module with `CASES` for each library.

A case has a name, and a function that writes the library's checkpoint into a folder and returns
images, NHWC, and the library's output for them.
"""

import functools
import importlib
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from keras_vit import VisionTransformer
from keras_vit.errors import CheckpointError
from tests.family_goldens import relative_error
from tests.helpers import to_numpy
from weights.sweeps import Outcome, judged

Case = Callable[[Path], tuple[np.ndarray, np.ndarray]]


def outcome(name: str, case: Case) -> Outcome:
    """Compares one model of a library with keras_vit."""
    with TemporaryDirectory() as folder:
        image, want = case(Path(folder))

        def compare() -> float:
            model = VisionTransformer.from_preset(folder, image_size=image.shape[1:3])
            return relative_error(to_numpy(model(image)), want)

        answer = judged(compare, CheckpointError).replace(folder, "")
    return Outcome(name.partition(" ")[0], (name,), answer)


def outcomes(library: str, names: tuple[str, ...] = ()) -> Iterator[Outcome]:
    """Runs the sweep over some cases of a library, or all."""
    for name, case in importlib.import_module(f"weights.sweeps.{library}").CASES.items():
        if not names or name in names:
            yield outcome(name, case)


def named(rows: Iterable[tuple], build: Callable[..., Any], common: Container[str]) -> dict:
    """Returns a case for each row `(class, fields, ...)`, named by its class and its own fields."""
    cases = {}
    for seed, (name, fields, *rest) in enumerate(rows):
        own = {key: value for key, value in fields.items() if key not in common}
        title = f"{name} {own}" if own else name
        cases[title] = functools.partial(build, name, fields, *rest, seed)
    return cases
