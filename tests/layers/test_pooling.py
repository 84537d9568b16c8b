"""Pooling: the class token, the mean of all tokens, and attention pooling."""

import numpy as np
import pytest

from keras_vit.config import Numerics
from keras_vit.errors import ConfigError
from keras_vit.layers import MAPHead, Pool
from tests import formulas
from tests.helpers import (
    MIXED_POLICIES,
    assert_close,
    dtype_of,
    normal,
    numpy_of,
    randomise,
    run,
    weights_of,
)
from tests.words import raises


def test_token_takes_the_first_token():
    """The other tokens are ignored."""
    x = normal(2, 5, 8)
    np.testing.assert_array_equal(numpy_of(Pool("token")(x)), x[:, 0])


def test_gap_takes_the_mean_of_all_tokens():
    """The first token counts like every other."""
    x = normal(2, 5, 8)
    assert_close(Pool("gap")(x), x.mean(1), 1e-6)


def test_gap_without_first_excludes_the_class_token():
    """The output is the mean of the patch tokens alone."""
    x = normal(2, 5, 8)
    assert_close(Pool("gap_without_first")(x), x[:, 1:].mean(1), 1e-6)


def test_means_skip_the_tokens_before_the_patches():
    """For the kind "gap", and for "token_and_mean", which puts the class token before the mean."""
    x = normal(2, 5, 8)
    assert_close(Pool("gap", skip=3)(x), x[:, 3:].mean(1), 1e-6)
    both = np.concatenate([x[:, 0], x[:, 3:].mean(1)], axis=1)
    assert_close(Pool("token_and_mean", skip=3)(x), both, 1e-6)


def test_the_kinds_for_two_tokens_return_both_or_their_mean():
    """The class token and the distillation token."""
    x = normal(2, 5, 8)
    np.testing.assert_array_equal(numpy_of(Pool("two_tokens")(x)), x[:, :2])
    assert_close(Pool("mean_of_two_tokens")(x), x[:, :2].mean(1), 1e-6)


def test_map_head_ignores_the_first_tokens_with_skip():
    """The probe attends to the remaining tokens only."""
    x = normal(2, 5, 8)
    layer = map_head(x, skip=2)
    assert_close(run(layer, x), formulas.map_head(x[:, 2:], weights_of(layer)))
    weights = numpy_of(layer.attention_weights(x))
    assert weights.shape == (2, 2, 1, 3)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


MASK = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]], bool)


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("kind", ["gap", "token_and_mean", "map"])
def test_masked_tokens_take_no_part_in_the_pooling(kind, skip):
    """The result is that of the other tokens alone, whatever the masked ones hold."""
    x = normal(2, 5, 8)
    layer = map_head(x, skip=skip) if kind == "map" else Pool(kind, skip)
    alone = [run(layer, row[None, keep])[0] for row, keep in zip(x, MASK, strict=True)]
    hidden = np.where(MASK[..., None], x, 1e3).astype("float32")
    assert_close(run(layer, hidden, mask=MASK), np.stack(alone), 1e-6)


def test_a_mean_of_masked_tokens_alone_is_zero():
    """It is finite, as the rows that fill up a batch need."""
    x = normal(2, 5, 8)
    assert not numpy_of(Pool("gap")(x, mask=np.zeros((2, 5), bool))).any()


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


@pytest.mark.parametrize("policy", MIXED_POLICIES)
def test_map_head_normalises_in_float32(policy):
    """Under a mixed policy its norm computes and returns float32."""
    layer = map_head(normal(2, 5, 8), dtype=policy)
    x = 300 + normal(2, 1, 8)  # 16 bits resolve 300 in steps of 0.25 or 2
    actual = layer.norm(x)
    assert dtype_of(actual) == "float32"
    assert_close(actual, formulas.layer_norm(x.astype("float64"), weights_of(layer), "norm"), 1e-4)
