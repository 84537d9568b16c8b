"""Inference on JAX: one program per shape, on all devices of `keras.distribution`."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np

from keras_vit.distribution.processes import batch_parts, whole
from keras_vit.models import inference


def padded_size(count: int, batch_size: int) -> int:
    """Returns the padded batch size for `count` images.

    XLA compiles for each size, so the batch size is a power of two, at most `batch_size`, and
    divisible by the number of devices.
    """
    size = min(1 << (count - 1).bit_length(), batch_size)
    return size + -size % batch_parts()


class Program:
    """A compiled call of a model; see `keras_vit.models.inference`."""

    def __init__(self, owner: Any, model: keras.Model, stages: tuple[str, ...]) -> None:
        self._run = compile_call(owner, model, lambda images: inference.call(model, images, stages))

    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        values = self._run(_divided(images))
        return {name: inference.as_float32(whole(value)) for name, value in values.items()}


def compile_call(
    owner: Any, model: keras.Model, function: Callable[..., Any], **options: Any
) -> Callable[..., Any]:
    """Compiles a function that calls a model with its current weights.

    The weights are arguments of the program, so that it does not contain a copy of them.

    Args:
        owner: the `Inference` of the model.
        model: the model.
        function: function of arrays that calls the model.
        **options: arguments of `jax.jit`.
    """
    weights = model.weights

    def run(values: list[Any], *arrays: Any) -> Any:
        with keras.StatelessScope(state_mapping=zip(weights, values, strict=True)):
            return function(*arrays)

    program = run if model.run_eagerly else jax.jit(run, **options)

    def call(*arrays: Any) -> Any:
        with owner.lock:  # a step of `fit` deletes the arrays that it replaces
            return program(_read_values(weights, model, owner), *arrays)

    return call


def _read_values(weights: list[Any], model: keras.Model, owner: Any) -> list[Any]:
    """Returns the values of weights; during a `fit` in another thread, those of the last step."""
    try:
        return [weight.value for weight in weights]
    except TypeError:  # a weight without a value calls its initializer, which is None
        if owner.training_state is None:
            raise
    pairs = zip(
        [*model.trainable_variables, *model.non_trainable_variables],
        itertools.chain(*owner.training_state),
        strict=True,
    )
    current = {id(variable): value for variable, value in pairs}
    return [current[id(weight)] for weight in weights]


def _divided(images: np.ndarray) -> Any:
    """Distributes the images of a batch over the devices."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return keras.ops.convert_to_tensor(images)
    layout = distribution.get_data_layout(images.shape).backend_layout
    if jax.process_count() == 1:
        return jax.device_put(images, layout)
    # Every process has all images, and passes its devices their part.
    return jax.make_array_from_callback(images.shape, layout, lambda part: images[part])
