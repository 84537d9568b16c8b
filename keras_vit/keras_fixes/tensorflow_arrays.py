"""Lets TensorFlow predict a few images without tracing a pipeline for each call.

Found 2026-11 in Keras 3.15.1 and TensorFlow 2.21.0. Report: docs/upstream/tensorflow_arrays.md.

Symptom: `predict` of one image with a tiny model takes 93 ms, and `predict_on_batch` 3 ms.

Cause: Keras builds a tf.data pipeline that gathers batches by indices, because `fit` shuffles. Each
call traces the three functions of the pipeline anew, also where nothing is shuffled.

Workaround: `predict` gets an array as a data set of its rows, in batches, which has no function.
Every other kind of data, and data for several replicas, pass as before.

Leans on: nothing private.
"""

import inspect
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.keras_fixes.adapted_data import AdaptedData

_PREDICT = inspect.signature(keras.Model.predict)


class PredictsArrays(AdaptedData):
    """A model whose `predict` starts without tracing functions of tf.data."""

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predicts as `keras.Model.predict`."""
        given = _PREDICT.bind(self, *args, **kwargs).arguments
        del given["self"]
        if self._is_plain(given["x"]) and given.get("steps") is None:
            rows = tf.data.Dataset.from_tensor_slices((given["x"],))
            given["x"] = rows.batch(given.pop("batch_size", None) or 32)
        return super().predict(**given)

    def _is_plain(self, x: Any) -> bool:
        """Whether Keras would pass `x` on as it is, to one replica."""
        return (
            isinstance(x, np.ndarray)
            and x.ndim > 0
            and len(x) > 0
            and x.dtype in (keras.config.floatx(), "uint8")
            and self.distribute_strategy.num_replicas_in_sync == 1  # type: ignore[attr-defined]
        )
