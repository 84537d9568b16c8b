"""How much of what is long or random a run of the tests repeats.

`make test` repeats it a few times, and runs some cases on torch alone, the fastest backend.
`make test-thorough` sets KERAS_VIT_THOROUGH=1: every count is the full one, and every case runs on
every backend.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

import keras

Case = TypeVar("Case")
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
    whole = THOROUGH or keras.backend.backend() in ("torch", "openvino")
    return every if whole else list(chosen)


KILLS = int(os.environ.get("KERAS_VIT_KILLS", times(5, 50)))
"""How often a test kills the same work at random moments."""
