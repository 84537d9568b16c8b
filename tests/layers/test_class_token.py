"""The class token of Eq. 1."""

import numpy as np

from keras_vit.layers import ClassToken
from tests.helpers import normal, numpy_of, randomise, run, weights_of


def test_the_token_comes_first_and_the_others_follow_unchanged():
    """Every example gets the same learned token in front of its tokens."""
    x = normal(3, 4, 8)
    layer = ClassToken(name="class_token")
    layer(x)
    randomise(layer)
    actual = run(layer, x)
    token = weights_of(layer)["token"].astype("float32")
    np.testing.assert_array_equal(actual[:, :1], np.repeat(token, 3, axis=0))
    np.testing.assert_array_equal(actual[:, 1:], x)


def test_the_token_starts_at_zero():
    """As in the reference."""
    actual = numpy_of(ClassToken()(normal(3, 4, 8)))
    assert not actual[:, 0].any()
    assert actual[:, 1:].any()
