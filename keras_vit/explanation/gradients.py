"""Imports jax, tensorflow or torch: gradients by the inputs of a function, and compilation."""

from collections.abc import Callable
from typing import Any

import keras

from keras_vit.distribution.processes import on_all_devices
from keras_vit.support.backend import require_training


def compile_call(model: keras.Model, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function`, which calls the model, in the backend's fastest form for NumPy arrays.

    Under JAX the weights are arguments of the compiled function, so that it has no copy of them.
    """
    program = _compile(model, function)
    return lambda *arrays: keras.tree.map_structure(
        keras.ops.convert_to_numpy, program(*map(keras.ops.convert_to_tensor, arrays))
    )


def _compile(model: keras.Model, function: Callable[..., Any]) -> Callable[..., Any]:
    backend = keras.backend.backend()
    if backend == "jax":
        from keras_vit.models.inference import on_jax

        return on_jax.compile_call(model.inference, model, function, out_shardings=on_all_devices())
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False, reduce_retracing=True)
    return function


def gradient(function: Callable[..., Any], sources: list[Any]) -> tuple[list[Any], Any]:
    """Returns the derivative of a score by each of its sources, and the second result.

    Args:
        function: takes `sources`, and returns a scalar score and a second result.
        sources: tensors of the backend. The gradient by a source without influence on the score
            is zero.

    Raises:
        BackendError: the backend is OpenVINO, which computes no gradients.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.grad(function, has_aux=True)(sources)
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            score, other = function(sources)
        return tape.gradient(score, sources, unconnected_gradients="zero"), other
    require_training()
    import torch

    with torch.enable_grad():
        sources = [source.detach().requires_grad_() for source in sources]
        score, other = function(sources)
    slopes = torch.autograd.grad(score, sources, allow_unused=True, materialize_grads=True)
    return list(slopes), keras.tree.map_structure(torch.Tensor.detach, other)
