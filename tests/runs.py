"""Which run of the suite this is, and how much of what is long or random it repeats.

`make test` runs the suite once without a backend (KERAS_BACKEND=none) and once on each backend.
`make test-thorough` sets KERAS_VIT_THOROUGH=1: nightly tests run, every count is the full one, and
`sample` chooses every case.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

Case = TypeVar("Case")


def _find_backend() -> str:
    """KERAS_BACKEND, or what Keras chooses without it."""
    if chosen := os.environ.get("KERAS_BACKEND"):
        return chosen
    import keras

    return keras.backend.backend()


BACKEND = _find_backend()
"""The backend of this run, or "none", where a test may import neither Keras nor a backend."""
THOROUGH = os.environ.get("KERAS_VIT_THOROUGH") == "1"


def times(short: int, full: int) -> int:
    """The count of `make test` or that of `make test-thorough`."""
    return full if THOROUGH else short


def sample(cases: Iterable[Case], *chosen: Case) -> list[Case]:
    """The cases that this backend runs: all on torch, `chosen` on JAX and TensorFlow.

    OpenVINO runs all too: it has few other tests.
    """
    every = list(cases)
    assert set(chosen) <= set(every), set(chosen) - set(every)
    return every if THOROUGH or BACKEND in ("torch", "openvino") else list(chosen)
