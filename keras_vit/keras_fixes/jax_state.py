"""Keeps the weights of a model in its variables while JAX trains, evaluates and predicts.

Found 2026-11 in Keras 3.15.1 and before. Report: docs/upstream/jax_state.md.

Symptom: after a `predict` or an `evaluate` that raised, and after a `fit` that raised in its
first step, every method of the model raises `'NoneType' object is not callable`. Threads that
predict at the same time raise the same, or "Array has been deleted", and break the model.

Cause: Keras takes the values out of the variables, donates them to the compiled step, whose
outputs reuse their memory, and puts the last outputs back only after success.

Workaround: the variables keep their values. A compiled step of `evaluate` or `predict` donates no
array, so that other threads keep theirs. (It also returns only changed values: 200 weights as
inputs and outputs cost 0.6 ms per call.) A step of `fit` donates as in Keras, and its outputs are
written into the variables at once.

Leans on: `JAXTrainer._purge_model_variables`, `JAXTrainer._make_function`,
`JAXTrainer._jax_state_synced`, `JAXTrainer._jax_state`, `Variable._value`.
"""

import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras

Step = Callable[[Any, Any], tuple[Any, Any]]
"""(state, batch) -> (outputs, next state); a state is a tuple of lists of arrays."""


class StateInPlace:
    """A model whose variables hold its weights at any time, also after an error."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        model = super().__new__(cls, *args, **kwargs)
        # An attribute that is set in the usual way would be tracked by Keras.
        vars(model)["_training"] = _Training()
        return model

    def __setattr__(self, name: str, value: Any) -> None:
        """Ignores `_jax_state`, which Keras sets after each batch and only the sync below reads.

        Keras would look at every one of its arrays: 1 % of the time of ViT-S/16 at batch 1.
        """
        if name != "_jax_state":
            super().__setattr__(name, value)

    def _purge_model_variables(self, *args: Any, **kwargs: Any) -> None:
        """Keeps the values in the variables, where Keras calls it to remove them."""

    def jax_state_sync(self) -> None:
        """Has no effect: Keras calls it to restore values, which were never removed."""

    @property
    def _jax_state_synced(self) -> bool:
        """Whether this thread has not yet read the state that it passes from step to step."""
        return getattr(self._training.of_thread, "synced", True)  # type: ignore[attr-defined]

    @_jax_state_synced.setter
    def _jax_state_synced(self, value: bool) -> None:
        self._training.of_thread.synced = value  # type: ignore[attr-defined]

    @functools.wraps(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        training: _Training = self._training  # type: ignore[attr-defined]
        training.variables = None
        training.is_fit = True
        try:
            return super().fit(*args, **kwargs)  # type: ignore[misc]
        finally:
            training.variables = None
            training.is_fit = False

    def make_test_function(self, force: bool = False) -> None:
        """Makes the function of a batch for `evaluate` and `test_on_batch`; called by Keras."""
        if self.test_function is None or force:  # type: ignore[has-type]
            step = self._undonated(self.test_step)  # type: ignore[attr-defined]
            self.test_function = super()._make_function(step)  # type: ignore[misc]

    def make_predict_function(self, force: bool = False) -> None:
        """Makes the function of a batch for `predict` and `predict_on_batch`; called by Keras."""

        def predict_step(state: Any, data: Any) -> Any:
            outputs, non_trainable = self.predict_step(state, data)  # type: ignore[attr-defined]
            return outputs, (state[0], non_trainable)

        if self.predict_function is None or force:  # type: ignore[has-type]
            step = self._undonated(predict_step)
            self.predict_function = super()._make_function(step, concatenate_outputs=True)  # type: ignore[misc]

    def _make_function(self, step_function: Step, concatenate_outputs: bool = False) -> Any:
        """Returns the compiled step of `fit`, which donates its state; called by Keras."""
        return super()._make_function(self._donated(step_function), concatenate_outputs)  # type: ignore[misc]

    def _donated(self, step: Step) -> Step:
        """Returns a training step whose outputs are written into the variables at once.

        Python handles signals such as Ctrl-C between its operations. No Python operation runs
        between the donation and the moment when `done` holds the outputs; `finally` writes them.
        """

        def run(state: Any, data: Any) -> tuple[Any, Any]:
            variables = self._train_variables()
            done: list[tuple[Any, Any]] = []
            with self._training.lock:  # type: ignore[attr-defined]
                try:
                    done.extend(map(step, (state,), (data,)))
                finally:
                    for _, new in done:
                        _write(variables, list(itertools.chain(*new)))
            return done[0]

        return run

    def _undonated(self, step: Step) -> Step:
        """Returns a compiled step of evaluation that donates no array of other threads."""
        compiles = self.jit_compile and not self.run_eagerly  # type: ignore[attr-defined]
        changes = _changes(step)
        changes = jax.jit(changes) if compiles else changes

        def run(state: Any, data: Any) -> tuple[Any, Any]:
            try:
                outputs, new = changes(state, data)
            except (RuntimeError, ValueError):  # JAX's Python and its C++ raise different types
                if not any(value.is_deleted() for value in jax.tree.leaves(state)):
                    raise
                # Another thread has trained the model since Keras read its state.
                with self._training.lock:  # type: ignore[attr-defined]
                    state = tuple([v.value for v in getattr(self, kind)] for kind in _of(state))
                    outputs, new = changes(state, data)
            for kind, part in zip(_of(state), new, strict=True):
                if any(value is not None for value in part):
                    _write(getattr(self, kind), part)
            return outputs, tuple(
                [old if value is None else value for old, value in zip(*parts, strict=True)]
                for parts in zip(state, new, strict=True)
            )

        return run

    def _train_variables(self) -> list[Any]:
        """All variables in the order of a training state; collected once in a `fit`."""
        model: Any = self
        training: _Training = model._training
        if training.variables is not None:
            return training.variables
        trainable, non_trainable, metrics = (getattr(model, kind) for kind in _KINDS)
        variables = [*trainable, *non_trainable, *model.optimizer.variables, *metrics]
        training.variables = variables if training.is_fit else None
        return variables


class _Training:
    """The common state of the training steps of one model."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held while values are donated and not yet replaced
        self.of_thread = threading.local()
        self.is_fit = False
        self.variables: list[Any] | None = None


_KINDS = ("trainable_variables", "non_trainable_variables", "metrics_variables")
"""The parts of the state of `evaluate`; `predict` has the first two."""


def _of(state: Any) -> tuple[str, ...]:
    return _KINDS[: len(state)]


def _changes(step: Step) -> Step:
    """Returns a step whose next state has None for every unchanged value."""

    def run(state: Any, data: Any) -> tuple[Any, Any]:
        outputs, new = step(state, data)
        return outputs, tuple(
            [None if value is old else value for old, value in zip(*parts, strict=True)]
            for parts in zip(state, new, strict=True)
        )

    return run


def _write(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Puts the values that are not None into the variables.

    `Variable.assign` converts and checks each value, which takes half a millisecond for 200. This
    loop runs inside the interpreter, so no signal interrupts it.
    """
    if any(value is None for value in values):
        pairs = zip(variables, values, strict=True)
        changed = [(variable, value) for variable, value in pairs if value is not None]
        variables, values = zip(*changed, strict=True)
    deque(map(setattr, variables, itertools.repeat("_value"), values), maxlen=0)
