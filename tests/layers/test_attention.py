"""Attention against Eqs. 5 to 8, with and without a context, and its dropout."""

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.layers import Attention
from tests import formulas
from tests.helpers import assert_close, randomise, read_dtype, read_weights, run, to_numpy
from tests.plain import POLICIES, ROUNDING, normal, raises

pytestmark = pytest.mark.every_backend


def built(x, context=None, **arguments):
    """A layer of two heads with random weights, built for the inputs."""
    layer = Attention(2, name="attention", **arguments)
    layer.build(x.shape, None if context is None else context.shape)
    return randomise(layer)


@pytest.mark.parametrize("context", [None, normal(2, 6, 5, seed=1)], ids=["self", "cross"])
def test_outputs_and_weights_equal_the_formulas(context):
    """Keys and values come from the input, or from a context of other tokens and width."""
    x = normal(2, 3, 8)
    layer = built(x, context)
    others, w = x if context is None else context, read_weights(layer)
    assert_close(run(layer, x, context), formulas.attention(x, others, w))
    weights = layer.attention_weights(x, context)
    assert_close(weights, formulas.attention_weights(x, others, w))


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("over", ["head", "width"])
def test_queries_and_keys_are_normed_by_head_or_together(over, kind):
    """Values are not; keys and queries have scales of their own."""
    x, context = normal(2, 3, 8), normal(2, 6, 8, seed=1)
    layer = built(x, context, block={"qk_norm": over, "norm": kind, "epsilon": 0.1})
    w = read_weights(layer)
    norm = {"layer": formulas.layer_norm, "rms": formulas.rms_norm}[kind]
    query, key, value = (
        np.einsum("btm,mhd->bthd", tokens, w[f"{name}/kernel"]) + w[f"{name}/bias"]
        for name, tokens in (("query", x), ("key", context), ("value", context))
    )
    if over == "width":
        query, key = (y.reshape(*y.shape[:2], 8) for y in (query, key))
    query, key = norm(query, w, "query_norm", 0.1), norm(key, w, "key_norm", 0.1)
    query, key = (y.reshape(*y.shape[:2], 2, 4) for y in (query, key))
    weights = formulas.softmax(np.einsum("bqhd,bkhd->bhqk", query, key) / 2)
    assert_close(layer.attention_weights(x, context), weights)
    heads = np.einsum("bhqk,bkhd->bqhd", weights, value)
    want = np.einsum("bthd,hdm->btm", heads, w["out/kernel"]) + w["out/bias"]
    assert_close(run(layer, x, context), want)
    assert_close(layer(x, context, read_weights=lambda weights: weights), want)


def test_a_bias_is_added_to_the_scores():
    """Before the softmax, also where the weights are formed."""
    x = normal(2, 6, 8)
    layer = built(x)
    w = read_weights(layer)
    bias = normal(1, 2, 6, 6, seed=2)
    plain = formulas.attention_weights(x, x, w)
    expected = plain * np.exp(bias)
    expected /= expected.sum(-1, keepdims=True)
    assert_close(layer.attention_weights(x, bias=bias), expected)
    value = np.einsum("btm,mhd->bthd", x, w["value/kernel"]) + w["value/bias"]
    heads = np.einsum("bhqk,bkhd->bqhd", expected, value)
    want = np.einsum("bthd,hdm->btm", heads, w["out/kernel"]) + w["out/bias"]
    assert_close(run(layer, x, bias=bias), want)
    assert_close(layer(x, bias=bias, read_weights=lambda weights: weights), want)


@pytest.mark.parametrize("policy", POLICIES)
def test_masked_tokens_do_not_influence_the_others(policy):
    """Each sequence gives what it gives alone, without its padding, which may be any number."""
    x, context = normal(2, 3, 8), normal(2, 6, 5, seed=1)
    layer = built(x, context, dtype=policy)
    lengths = (4, 6)
    mask = np.arange(6) < np.array(lengths)[:, None]
    padded = np.where(mask[..., None], context, 1e3 * normal(2, 6, 5, seed=2))
    found = run(layer, x, padded, mask=mask)
    alone = [run(layer, x[i : i + 1], context[i : i + 1, :n]) for i, n in enumerate(lengths)]
    assert_close(found, np.concatenate(alone), 1e-6 if policy == "float32" else ROUNDING[policy])
    weights = to_numpy(layer.attention_weights(x, padded, mask=mask))
    assert (weights[0, :, :, 4:] == 0).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_softmax_is_float32_under_every_policy(policy):
    """Weights over 500 tokens sum to 1 within 1e-6; in 16 bits the sum is off by over 1e-4."""
    x = 0.3 * normal(1, 500, 8)
    layer = built(x, dtype=policy)
    weights = layer.attention_weights(x)
    assert read_dtype(weights) == "float32"
    sums = to_numpy(weights).sum(-1, dtype="float64")
    np.testing.assert_allclose(sums, 1.0, rtol=0, atol=1e-6)


def test_dropout_falls_on_the_weights_and_not_on_the_output():
    """With a single token, each head's value is either doubled or dropped as a whole."""
    x = np.repeat(normal(1, 1, 8), 64, axis=0)
    layer = built(x, dropout_rate=0.5)
    w = read_weights(layer)
    value = np.einsum("m,mhd->hd", x[0, 0], w["value/kernel"]) + w["value/bias"]
    heads = np.einsum("hd,hdm->hm", value, w["out/kernel"])
    outcomes = np.array(
        [2 * (first * heads[0] + second * heads[1]) + w["out/bias"]
         for first in (0, 1) for second in (0, 1)]
    )  # fmt: skip
    found = run(layer, x, training=True)[:, 0]
    distance = np.abs(found[:, None] - outcomes).max(-1)
    assert (distance.min(1) < 1e-5).all()
    assert set(distance.argmin(1)) == {0, 1, 2, 3}


def test_a_width_that_heads_do_not_divide_is_refused():
    """The message names both numbers; an invalid block is refused as in a configuration."""
    with raises(ConfigError, "block.qk_norm='heads'", "head, width"):
        Attention(2, block={"qk_norm": "heads"})
    with raises(ConfigError, "block must be a Block or a dict", "'rms'"):
        Attention(2, block="rms")
    with raises(ConfigError, "hidden_size=9", "num_heads=2"):
        Attention(2)(normal(1, 3, 9))
