"""Helpers of several test files: arrays, randomised weights, small models, comparisons."""

import keras
import numpy as np
import pytest
from keras.src.testing import TestCase

KERAS_3_14 = keras.__version__.startswith("3.14.")

one_graph = pytest.mark.xfail(
    not keras.__version__.startswith("3.15.") and keras.backend.backend() == "torch",
    reason="The compiler of torch 2.13 cannot follow some calls of Keras 3.14 and 3.16.",
    strict=False,  # it follows the calls of other layers
)
"""Marks tests that compile a layer or a model without a break in its graph."""


def skip_without_bfloat16() -> None:
    """Skips a test of torch if oneDNN refuses to multiply bfloat16, as with AVX2 alone."""
    import torch

    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.zeros(1, 1, dtype=torch.bfloat16))
    except RuntimeError as error:
        assert "needs the cpu support" in str(error)
        pytest.skip("oneDNN refuses bfloat16 on this processor")


def to_numpy(tensor) -> np.ndarray:
    """A tensor of any backend and float type as a float32 array."""
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))


def output_and_gradients(function, inputs):
    """The second result of a function, and the gradients of its first by each input.

    Args:
        function: takes the inputs, and returns a scalar and a tensor.
        inputs: float tensors of the backend.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        grad = jax.jit(jax.value_and_grad(function, range(len(inputs)), has_aux=True))
        (_, output), gradients = grad(*inputs)
        return output, gradients
    if backend == "torch":
        inputs = [tensor.detach().requires_grad_() for tensor in inputs]
        total, output = function(*inputs)
        total.backward()
        return output.detach(), [tensor.grad for tensor in inputs]
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total, output = function(*inputs)
    return output, tape.gradient(total, inputs)


def run(layer, *inputs, training: bool = False, **named) -> np.ndarray:
    """The output of a layer as a float32 array.

    JAX compiles the layer as a whole, which is faster than operation by operation for new shapes.
    """
    if keras.backend.backend() != "jax":
        return to_numpy(layer(*inputs, training=training, **named))
    import jax

    if not layer.built:
        layer.build(*(array.shape for array in (*inputs, *named.values())))

    def call(values, inputs, named):
        with keras.StatelessScope(zip(layer.variables, values, strict=True)):
            return layer(*inputs, training=training, **named)

    values = [variable.value for variable in layer.variables]
    return to_numpy(jax.jit(call)(values, inputs, named))


def read_dtype(tensor) -> str:
    """Name of a tensor's dtype, spelt alike for every backend."""
    return keras.backend.standardize_dtype(tensor.dtype)


def randomise(layer, seed: int = 0):
    """Gives every weight of a built layer or model random values.

    Heads, scales and biases start at zero, which would hide faults of the layers before them.
    """
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        values = 0.3 * rng.standard_normal(weight.shape)
        if weight.name == "moving_variance":
            values = 1 + np.abs(values)
        weight.assign(values + (weight.name == "gamma"))
    return layer


def read_weights(layer) -> dict[str, np.ndarray]:
    """The weights of a layer as float64 arrays, by their path below the layer."""
    prefix = f"{layer.name}/"
    return {
        weight.path.removeprefix(prefix): keras.ops.convert_to_numpy(weight).astype("float64")
        for weight in layer.weights
    }


def copy_weights(source, target):
    """Copies the weights of one model to another with the same paths; returns the target."""
    values = {weight.path: weight for weight in source.weights}
    for weight in target.weights:
        weight.assign(keras.ops.convert_to_numpy(values[weight.path]))
    return target


def tiny(**fields):
    """A Vision Transformer with 16-pixel images, 4 patches and 1 block; `fields` override."""
    from keras_vit import VisionTransformer

    sizes = {
        "image_size": 16,
        "patch_size": 8,
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_heads": 2,
        "num_layers": 1,
        "num_classes": 5,
    }
    return VisionTransformer(**{**sizes, **fields})


def random_tiny(**fields):
    """A `tiny` model with `randomise`d weights."""
    from keras_vit.layers import blank_weights

    with blank_weights():  # initial values would be drawn by a program for each shape
        model = tiny(**fields)
    return randomise(model)


def assert_remat_trains_alike(model, images, labels, tolerance: float) -> None:
    """Fails unless a step of SGD changes the weights as it does with `remat=True`."""
    again = copy_weights(model, tiny(**model.config.to_dict(), remat=True))
    for trained in (model, again):
        trained.compile(keras.optimizers.SGD(0.05), "auto")
        trained.fit(images, labels, verbose=0)
    for one, other in zip(model.weights, again.weights, strict=True):
        assert_close(other, to_numpy(one), tolerance)


def assert_close(found, expected, tolerance: float = 1e-5) -> None:
    """Fails if a value differs by more than `tolerance` times the largest expected value."""
    found = found if isinstance(found, np.ndarray) else to_numpy(found)
    assert found.shape == expected.shape
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


def run_layer_test(layer_class, init_kwargs: dict, **expected) -> None:
    """Keras's own check of a layer: config, build, symbolic, eager, a training step, float16."""
    TestCase().run_layer_test(layer_class, init_kwargs, **expected)
