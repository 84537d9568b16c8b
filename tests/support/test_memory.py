"""Weights take over arrays, with their numbers, their types and without a second copy."""

import keras
import ml_dtypes
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
    variable.assign(keras.ops.ones(shape, dtype))
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(variable).astype("float32"), np.ones(shape)
    )


@pytest.mark.on_one_backend("jax")
def test_a_variable_of_jax_has_memory_that_a_step_can_take_over():
    """A step copies memory of NumPy: all weights of a model at once."""
    variable, array = keras.Variable(np.zeros(100), trainable=False), aligned((100,), "float32")
    give(variable, array)
    assert not np.shares_memory(np.asarray(variable.value), array)


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16])
def test_the_memory_of_an_array_for_weights_begins_at_a_multiple_of_64_bytes(dtype):
    addresses = [aligned((size, 3), dtype).ctypes.data for size in (1, 2, 7, 1000)]
    assert [address % 64 for address in addresses] == [0, 0, 0, 0]
