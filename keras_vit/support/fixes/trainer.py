"""Works around faults of Keras's `fit`, `evaluate` and `predict`, by public methods.

tests/support/fixes/test_trainer.py has the canaries.

- JAX: Keras takes the weights out of the variables while it runs, and puts them back only after
  success. A failed `evaluate` or `predict` leaves a model without weights, and so do two threads in
  `predict`. `kept_whole` puts them back, by `jax_state_sync`; the inference function waits for
  that. `share_weights` keeps the weights of a running `fit` where the inference function finds
  them.
- All backends: the metrics of a model are its variables, so that two threads in `evaluate`
  would count in the same metrics. `kept_whole` lets one thread evaluate or predict at a time.
- torch: Keras frees the gradients of a step after the next forward pass, so that the peak of the
  memory has both. `FreedGradients`, a callback that recipes carry, frees them before.
- TensorFlow: tf.data tunes a data set in a thread that sleeps for 10 ms, then 20, 40, up to a
  minute. The end of `fit`, `evaluate` and `predict` wakes it and waits for its end; but it is woken
  before it can see that it is cancelled, and often sleeps on, so that a call takes up to twice its
  time. `without_tuning` switches it off where the data set does not ask for it.
- OpenVINO: Keras compiles the weights into the program of `predict` and never looks at them again,
  and lets OpenVINO choose bfloat16. `predict` computes by the inference function instead, and
  `evaluate`, which is slow there, by calls of the model.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import keras
import numpy as np

Method = TypeVar("Method", bound=Callable[..., Any])


def shown_as(method: Any) -> Callable[[Method], Method]:
    """Returns a decorator by which `help` shows the signature and docstring of `method`."""
    return cast(Callable[[Method], Method], functools.wraps(method))


@contextlib.contextmanager
def kept_whole(model: Any) -> Iterator[None]:
    """Runs `evaluate` or `predict` of a model in one thread at a time, and keeps its weights."""
    inference, backend = model.inference, keras.backend.backend()
    with inference.trainer_lock, inference.lock if backend == "jax" else contextlib.nullcontext():
        if backend == "openvino":
            model.supports_jit = False  # `evaluate` calls the model, which has the present weights
            model.predict_function = lambda data: _predict_on_openvino(model, data)
        before = [(v, _read_value(v)) for v in model.variables] if backend == "jax" else []
        try:
            yield
        finally:
            if backend == "jax":
                model.jax_state_sync()
                # An error before the first step leaves Keras without a state to put back.
                for variable, value in before:
                    if value is not None and _read_value(variable) is None:
                        variable.assign(value)
                if inference.training_state is not None:  # its arrays were replaced
                    inference.training_state = _read_state(model)


def _read_value(variable: Any) -> Any:
    """Returns the value of a variable or None; without one it calls its initializer, None."""
    with contextlib.suppress(TypeError):
        return variable.value


def _read_state(model: Any) -> list[list[Any]]:
    kinds = (model.trainable_variables, model.non_trainable_variables)
    return [[variable.value for variable in kind] for kind in kinds]


def share_weights(model: Any) -> None:
    """Lets the inference function read the weights of a `fit` that runs in another thread, on JAX.

    A step of `fit` deletes the arrays of the weights that it replaces. The inference function may
    not take them at this moment, so both hold its lock.
    """
    if keras.config.is_nnx_enabled():
        return
    inference, step = model.inference, model.train_function
    inference.training_state = _read_state(model)
    if getattr(step, "shares_weights", False):
        return

    def shared(state: Any, data: Any) -> Any:
        with inference.lock:
            logs, new = step(state, data)
            inference.training_state = new[:2]  # trainable and other variables of the model
        return logs, new

    shared.shares_weights = True  # type: ignore[attr-defined]
    model.train_function = shared


class FreedGradients(keras.callbacks.Callback):
    """A callback of the recipes on torch that frees the gradients before the next step begins."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Resets the gradients, as `torch.nn.Module.zero_grad` does."""
        self.model.zero_grad()


def without_tuning(strategy: Any) -> Any:
    """Returns the strategy of a model, which tunes no data sets if it has one device alone."""
    import tensorflow as tf

    if tf.distribute.has_strategy() or strategy is not tf.distribute.get_strategy():
        return strategy

    class Untuned(tf.distribute.Strategy):
        """TensorFlow's strategy of one device, for data sets that no thread tunes."""

        def scope(self) -> Any:
            """Returns the scope of the default strategy, the only one that TensorFlow accepts."""
            return strategy.scope()

        def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
            """Returns the data set; without its tuning `tf.data.AUTOTUNE` is a fixed number."""
            if dataset.options().autotune.enabled is None:
                untuned = tf.data.Options()
                untuned.autotune.enabled = False
                dataset = dataset.with_options(untuned)
            return strategy.experimental_distribute_dataset(dataset, options)

    return Untuned(strategy.extended)


def _predict_on_openvino(model: Any, data: Any) -> Any:
    outputs = [
        model.inference.run(model, keras.utils.unpack_x_y_sample_weight(batch)[0]) for batch in data
    ]
    return np.concatenate(outputs)
