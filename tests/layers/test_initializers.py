"""The Xavier initialiser of kernels with heads, and `blank_weights`."""

import keras
import numpy as np
import pytest

from keras_vit.layers import LecunNormal, RandomNormal, XavierUniform, blank_weights
from tests.helpers import read_dtype, to_numpy
from tests.plain import through_json

pytestmark = pytest.mark.every_backend


@pytest.mark.parametrize(
    ("shape", "input_axes", "fans"),
    [
        ((48, 4, 12), 1, (48, 48)),
        ((4, 12, 30), 2, (48, 30)),
        ((20, 80), 1, (20, 80)),
        ((1, 1, 500), 2, (1, 500)),
    ],
)
def test_the_limit_counts_fans_of_the_flattened_kernel(shape, input_axes, fans):
    """Values are uniform in [-limit, limit], with limit = sqrt(6 / (fan_in + fan_out))."""
    initializer = XavierUniform(input_axes, seed=0)
    values = to_numpy(initializer(shape))
    np.testing.assert_array_equal(values, to_numpy(initializer(shape)))
    limit = np.sqrt(6 / sum(fans))
    assert values.shape == shape
    assert 0.98 * limit < values.max() <= limit
    assert -0.98 * limit > values.min() >= -limit
    assert abs(values.std() - limit / np.sqrt(3)) < 0.1 * limit


def test_an_initialiser_is_rebuilt():
    """From JSON, without `custom_objects`."""
    serialised = through_json(keras.saving.serialize_keras_object(XavierUniform(2, seed=1)))
    revived = keras.saving.deserialize_keras_object(serialised)
    assert (type(revived), revived.input_axes, revived.seed) == (XavierUniform, 2, 1)
    assert read_dtype(revived((2, 2))) == "float32"


@pytest.mark.parametrize("initializer", [LecunNormal(), RandomNormal(stddev=0.1), XavierUniform()])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inside_blank_weights_initialisers_give_zeros(initializer, dtype):
    """Of the requested dtype; outside, the values are random again."""
    with blank_weights():
        blank = keras.ops.convert_to_tensor(initializer((4, 5), dtype=dtype))
    drawn = initializer((4, 5), dtype=dtype)
    assert read_dtype(blank) == read_dtype(drawn) == dtype
    assert not to_numpy(blank).any()
    assert to_numpy(drawn).any()
