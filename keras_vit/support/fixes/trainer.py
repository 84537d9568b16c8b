"""Works around bugs of Keras's `fit`, `evaluate` and `predict`, by public methods.

tests/support/fixes/test_trainer.py has the canary tests.

- JAX: Keras moves the weights out of the variables while it runs, and restores them only on
  success. A failed `evaluate` or `predict` leaves a model without weights, and so do two threads in
  `predict`. `guard_weights` restores them with `jax_state_sync`; the inference function waits for
  that. `share_weights` gives the inference function the weights of a running `fit`.
- All backends: the metrics of a model are its variables, so that two threads in `evaluate`
  would update the same metrics. `guard_weights` lets one thread evaluate or predict at a time.
- torch: Keras frees the gradients of a step after the next forward pass, so that peak memory
  includes both. `FreedGradients`, a callback that recipes include, frees them before.
- TensorFlow: tf.data autotunes a data set in a thread that sleeps for 10 ms, then 20, 40, up to a
  minute. At the end, `fit`, `evaluate` and `predict` wake the thread and wait for it; but it wakes
  before its cancellation is visible and often sleeps again, so that a call can take twice as long.
  `without_tuning` disables autotuning unless the data set asks for it.
- OpenVINO: Keras compiles the weights into the program of `predict`, ignores later changes of
  them, and lets OpenVINO choose bfloat16. Instead, `predict` uses the inference function, and
  `evaluate`, which is slow there, calls the model.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import keras
import numpy as np

Method = TypeVar("Method", bound=Callable[..., Any])


def shown_as(method: Any) -> Callable[[Method], Method]:
    """Returns a decorator that makes `help` show the signature and docstring of `method`."""
    return cast(Callable[[Method], Method], functools.wraps(method))


@contextlib.contextmanager
def guard_weights(model: Any) -> Iterator[None]:
    """Runs `evaluate` or `predict` of a model in one thread at a time, and restores its weights."""
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
                # After an error before the first step, Keras has no state to restore.
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
    """Lets the inference function use the weights of a `fit` that runs in another thread, on JAX.

    A step of `fit` deletes the arrays of the weights that it replaces. The inference function must
    not read them at that moment, so both hold its lock.
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
    """Frees the gradients before the next training step, to save memory on PyTorch."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Resets the gradients, as `torch.nn.Module.zero_grad` does."""
        self.model.zero_grad()


def without_tuning(strategy: Any) -> Any:
    """Returns the strategy of a model, without tf.data autotuning if it has a single device."""
    import tensorflow as tf

    if tf.distribute.has_strategy() or strategy is not tf.distribute.get_strategy():
        return strategy

    class Untuned(tf.distribute.Strategy):
        """TensorFlow's strategy for one device, without autotuning of data sets."""

        def scope(self) -> Any:
            """Returns the scope of the default strategy, the only one that TensorFlow accepts."""
            return strategy.scope()

        def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
            """Returns the data set; without autotuning `tf.data.AUTOTUNE` is a fixed number."""
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
