"""Trains and evaluates a model in one thread at a time.

Found 2026-11 in Keras 3.15.1 and before, on every backend. Report: docs/upstream/threads.md.

Symptom: threads that evaluate one model at the same time get wrong losses and metrics. The
metrics of a model are variables of the model: each `evaluate` resets them at its start, and both
threads count in the same variables.

Workaround: the second thread waits for the first. During `fit`, which may take hours and whose
data may come from the second thread, the second thread raises instead. `predict`,
`predict_on_batch` and `classify` use no metrics and do not wait.

Leans on: nothing private.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import keras

from keras_vit.errors import ConfigError


def _in_turn(name: str) -> Callable[..., Any]:
    """Returns the method of a name, which waits for other threads that train or evaluate."""

    @functools.wraps(getattr(keras.Model, name))
    def method(self: "OneAtATime", *args: Any, **kwargs: Any) -> Any:
        with self._turn(name):
            return getattr(super(OneAtATime, self), name)(*args, **kwargs)

    return method


class OneAtATime:
    """A model that is trained and evaluated in one thread at a time."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        model = super().__new__(cls, *args, **kwargs)
        # Keras and torch would refuse or track an attribute set before their constructors run.
        vars(model)["_turns"] = _Turns()
        return model

    fit = _in_turn("fit")
    evaluate = _in_turn("evaluate")
    train_on_batch = _in_turn("train_on_batch")
    test_on_batch = _in_turn("test_on_batch")

    def _turn(self, name: str) -> "_Turn":
        turns: _Turns = self._turns  # type: ignore[attr-defined]
        return _Turn(turns, name)


class _Turns:
    """The lock of one model, and the thread that is inside `fit`, or None."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.fitting: int | None = None


class _Turn:
    """Holds the lock during one call of a method."""

    def __init__(self, turns: _Turns, name: str) -> None:
        self._turns = turns
        self._name = name

    def __enter__(self) -> None:
        turns, here = self._turns, threading.get_ident()
        while not turns.lock.acquire(timeout=0.05):
            if turns.fitting not in (None, here):
                raise ConfigError(
                    f"{self._name} was called while another thread trains this model with fit; "
                    "both count in the same metrics. Call it after fit, or in a callback of fit. "
                    "predict, predict_on_batch and classify may be called at any time."
                )
        self._outer = turns.fitting
        if self._name == "fit":
            turns.fitting = here

    def __exit__(self, *error: object) -> None:
        self._turns.fitting = self._outer
        self._turns.lock.release()
