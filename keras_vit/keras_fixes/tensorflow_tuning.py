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

Leans on: `keras_fixes/adapted_data.py`.
"""

from typing import Any

import tensorflow as tf

from keras_vit.keras_fixes.adapted_data import AdaptedData


class UntunedData(AdaptedData):
    """A model that trains, evaluates and predicts without tuning its data sets."""

    def _adapted(self, adapter: Any, purpose: str) -> Any:
        """Returns an adapter of the same data, changed to make a data set without tuning."""
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
