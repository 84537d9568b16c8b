"""Weights take over arrays, with their numbers, their types and without a second copy."""

import keras
import numpy as np
import pytest

from keras_vit.support.memory import aligned, give


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(3, 5), (4,), ()])
def test_a_variable_has_the_numbers_and_the_type_of_a_given_array(dtype, shape):
    variable = keras.Variable(np.zeros(shape), dtype=dtype, trainable=False)
    array = aligned(shape, dtype)
    array[...] = np.arange(array.size).reshape(shape) / 2
    expected = array.astype("float32")
    give(variable, array)
    assert keras.backend.standardize_dtype(variable.dtype) == dtype
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable).astype("float32"), expected)


@pytest.mark.on_backend("jax")
@pytest.mark.parametrize("axes", [(2, 0, 1), (1, 0, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(3, 16, 32), (1, 16, 1)])
@pytest.mark.parametrize("behind", [0, 4, 32])
def test_a_weight_of_jax_keeps_its_numbers_when_those_of_the_array_change(shape, axes, behind):
    view = aligned(shape, "float32", offset=behind)
    view[...] = np.random.default_rng(0).normal(size=shape)
    view = view.transpose(axes)
    expected, variable = view.copy(), keras.Variable(np.zeros(view.shape), trainable=False)
    give(variable, view)
    view[...] = 0
    np.testing.assert_array_equal(np.asarray(variable.value), expected)
