"""Inference on TensorFlow: one tf.function per image shape, for any number of images."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.models import inference


def padded_size(count: int, batch_size: int) -> int:
    """Returns the batch size for `count` images; TensorFlow does not need padding."""
    return count


class Program:
    """A compiled call of a model on one replica; see `keras_vit.models.inference`."""

    def __init__(self, owner: Any, model: keras.Model, stages: tuple[str, ...]) -> None:
        self._lock = owner.lock

        def run(images: Any) -> dict[str, Any]:
            return inference.call(model, images, stages)

        self._run = tf.function(run, jit_compile=model.jit_compile, autograph=False)
        self._eager = run if model.run_eagerly else None
        self._functions: dict[Any, Any] = {}

    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        batch = keras.ops.convert_to_tensor(images)
        values = (self._eager or self._function(batch))(batch)
        return {name: inference.as_float32(value) for name, value in values.items()}

    def _function(self, batch: Any) -> Any:
        """Returns the function for any number of images of this shape, which is traced once."""
        key = (batch.dtype, tuple(batch.shape[1:]))
        with self._lock:
            if key not in self._functions:
                shape = tf.TensorSpec((None, *batch.shape[1:]), batch.dtype)
                self._functions[key] = self._run.get_concrete_function(shape)
            return self._functions[key]
