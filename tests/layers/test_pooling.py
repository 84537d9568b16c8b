"""Pooling: the class token, the mean of all tokens, and attention pooling."""

import numpy as np
import pytest

from keras_vit.config import Numerics
from keras_vit.errors import ConfigError
from keras_vit.layers import MAPHead, Pool
from tests import formulas
from tests.helpers import (
    assert_close,
    normal,
    numpy_of,
    randomise,
    run,
    weights_of,
)
from tests.words import raises


@pytest.mark.parametrize(
    ("kind", "skip", "expected"),
    [
        ("token", 0, lambda x: x[:, 0]),
        ("gap", 0, lambda x: x.mean(1)),
        ("gap", 3, lambda x: x[:, 3:].mean(1)),
        ("gap_without_first", 0, lambda x: x[:, 1:].mean(1)),
        ("token_and_mean", 3, lambda x: np.concatenate([x[:, 0], x[:, 3:].mean(1)], axis=1)),
        ("two_tokens", 0, lambda x: x[:, :2]),
        ("mean_of_two_tokens", 0, lambda x: x[:, :2].mean(1)),
    ],
)
def test_each_kind_pools_by_its_formula(kind, skip, expected):
    """Means leave out the first `skip` tokens, such as registers before the patches."""
    x = normal(2, 5, 8)
    assert_close(Pool(kind, skip=skip)(x), expected(x), 1e-6)


def test_map_head_ignores_the_first_tokens_with_skip():
    """The probe attends to the remaining tokens only."""
    x = normal(2, 5, 8)
    layer = map_head(x, skip=2)
    assert_close(run(layer, x), formulas.map_head(x[:, 2:], weights_of(layer)))
    weights = numpy_of(layer.attention_weights(x))
    assert weights.shape == (2, 2, 1, 3)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_an_unknown_kind_is_refused():
    """The message names the kind found and the kinds known."""
    with raises(ConfigError, "kind='max'", "token, gap, gap_without_first"):
        Pool("max")


def map_head(x, **arguments):
    """A MAPHead of two heads and `mlp_dim=16` with random weights, built for the input."""
    layer = MAPHead(2, 16, name="pool", **arguments)
    layer.build(x.shape)
    return randomise(layer)


@pytest.mark.parametrize(("form", "epsilon"), [("tanh", 1e-6), ("exact", 0.1)])
def test_map_head_equals_the_formula(form, epsilon):
    """A probe attends to all tokens; then x + MLP(LN(x)), as in big_vision."""
    x = normal(2, 5, 8)
    layer = map_head(x, gelu=form, layer_norm_epsilon=epsilon)
    numerics = Numerics(gelu=form, layer_norm_epsilon=epsilon)
    assert_close(run(layer, x), formulas.map_head(x, weights_of(layer), numerics))


def test_map_head_starts_with_a_xavier_probe():
    """Uniform within sqrt(6 / (1 + hidden_size)), as in big_vision."""
    layer = MAPHead(2, 16, name="pool")
    layer.build((None, 2, 64))
    probe = weights_of(layer)["probe"]
    limit = np.sqrt(6 / (1 + 64))
    assert probe.shape == (1, 1, 64)
    assert 0.9 * limit < np.abs(probe).max() <= limit
