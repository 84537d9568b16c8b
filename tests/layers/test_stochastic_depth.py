"""Stochastic depth drops whole examples, preserves the mean, and is off at inference."""

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.layers import StochasticDepth
from tests.helpers import run
from tests.plain import POLICIES, raises

pytestmark = pytest.mark.every_backend


@pytest.mark.parametrize("shape", [(2000,), (2000, 2, 3), (2000, 2, 3, 4)])
@pytest.mark.parametrize("policy", POLICIES)
def test_whole_examples_are_dropped_and_the_others_enlarged(policy, shape):
    """Every example is zero or `x / (1 - rate)`; the share of zeros is about `rate`."""
    x = np.ones(shape, "float32")
    actual = run(StochasticDepth(0.75, dtype=policy), x, training=True).reshape(2000, -1)
    assert (actual == actual[:, :1]).all()
    assert set(np.unique(actual)) == {0.0, 4.0}
    assert abs((actual[:, 0] == 0).mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 2000)


def test_a_seed_repeats_the_draws():
    """Two layers with one seed drop the same examples; another seed drops other examples."""
    x = np.ones((64, 1), "float32")
    first, again, other = (
        run(StochasticDepth(0.5, seed=seed), x, training=True) for seed in (7, 7, 8)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("rate", [1.0, -0.1])
def test_an_impossible_rate_is_refused(rate):
    """The message names the rate and its range."""
    with raises(ConfigError, "rate", "[0, 1)", str(rate)):
        StochasticDepth(rate)
