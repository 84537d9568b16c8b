"""The class token of Eq. 1."""

import numpy as np

from keras_vit.layers import ClassToken
from tests.helpers import normal, numpy_of, randomise, run, weights_of


def test_the_token_comes_first_and_the_others_follow_unchanged():
    """Every example gets the same learned token in front of its tokens."""
    x = normal(3, 4, 8)
    layer = ClassToken(name="class_token")
    assert not numpy_of(layer(x))[:, 0].any()  # zero at first, as in the reference
    randomise(layer)
    actual = run(layer, x)
    token = weights_of(layer)["token"].astype("float32")
    np.testing.assert_array_equal(actual[:, :1], np.repeat(token, 3, axis=0))
    np.testing.assert_array_equal(actual[:, 1:], x)
