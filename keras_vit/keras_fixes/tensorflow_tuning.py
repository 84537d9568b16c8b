"""Gives TensorFlow data sets that tf.data does not tune, so that epochs end without a wait.

Found 2026-11 in TensorFlow 2.21.0. Report: docs/upstream/tensorflow_autotune.md.

Symptom: `fit`, `evaluate` and `predict` return up to twice as late as their last step, at random:
`predict` of 128 batches took 2.15 s instead of 1.72 s on average, and of 16 batches 0.27 s
instead of 0.19 s.

Cause: tf.data tunes a data set in a thread that sleeps for 10 ms, then 20, 40, and so on up to a
minute. At the end of each epoch Keras drops an iterator that is not exhausted; this wakes the
thread and waits for its end. `CancellationManager::StartCancel` wakes the thread a moment before
`IsCancelled` returns true, so that in about half of all cases the thread goes back to sleep.

Workaround: Keras gets the data of a model in a data adapter, which it accepts in place of data,
with `options.autotune.enabled = False`. A data set that sets this option itself keeps its value.
Keras handles `validation_split`.

Leans on: `keras.src.trainers.data_adapters.get_data_adapter`.
"""

import functools
import inspect
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers import data_adapters

_SIGNATURES = {
    name: inspect.signature(getattr(keras.Model, name)) for name in ("fit", "evaluate", "predict")
}


class UntunedData:
    """A model that trains, evaluates and predicts without tuning its data sets."""

    @functools.wraps(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        given = _SIGNATURES["fit"].bind(self, *args, **kwargs).arguments
        validation = given.get("validation_data")
        if self.compiled and validation is not None:  # type: ignore[attr-defined]
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(validation)
            given["validation_data"] = _untuned(
                x,
                y,
                sample_weight,
                given.get("validation_batch_size") or given.get("batch_size"),
                given.get("validation_steps"),
            )
        # Otherwise Keras raises, or splits the arrays.
        if self.compiled and (validation is not None or not given.get("validation_split")):  # type: ignore[attr-defined]
            given["x"] = _untuned(
                given.get("x"),
                given.pop("y", None),
                given.pop("sample_weight", None),
                given.get("batch_size"),
                given.get("steps_per_epoch"),
                given.pop("shuffle", True),
                given.pop("class_weight", None),
            )
        return super().fit(**_without_self(given))  # type: ignore[misc]

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        given = _SIGNATURES["evaluate"].bind(self, *args, **kwargs).arguments
        further = given.pop("kwargs", {})  # `fit` passes data that it has already prepared here
        if self.compiled and not further:  # type: ignore[attr-defined]
            given["x"] = _untuned(
                given.get("x"),
                given.pop("y", None),
                given.pop("sample_weight", None),
                given.get("batch_size"),
                given.get("steps"),
            )
        return super().evaluate(**_without_self(given), **further)  # type: ignore[misc]

    @functools.wraps(keras.Model.predict)
    def predict(self, *args: Any, **kwargs: Any) -> Any:
        given = _SIGNATURES["predict"].bind(self, *args, **kwargs).arguments
        given["x"] = _untuned(given["x"], None, None, given.get("batch_size"), given.get("steps"))
        return super().predict(**_without_self(given))  # type: ignore[misc]


def _without_self(given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "self"}


def _untuned(
    x: Any,
    y: Any,
    sample_weight: Any,
    batch_size: int | None,
    steps: int | None,
    shuffle: bool = False,
    class_weight: Any = None,
) -> Any:
    """Returns Keras's adapter of these data, changed to make a data set without tuning."""
    adapter = data_adapters.get_data_adapter(
        x, y, sample_weight, batch_size, steps, shuffle, class_weight
    )
    make = adapter.get_tf_dataset

    def get_tf_dataset() -> Any:
        dataset = make()
        if isinstance(dataset, tf.data.Dataset) and dataset.options().autotune.enabled is None:
            options = tf.data.Options()
            options.autotune.enabled = False
            dataset = dataset.with_options(options)
        return dataset

    adapter.get_tf_dataset = get_tf_dataset
    return adapter
