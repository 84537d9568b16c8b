"""Attention against Eqs. 5 to 8, with and without a context, and its dropout."""

import numpy as np
import pytest

from keras_vit.layers import Attention
from tests import formulas
from tests.helpers import assert_close, randomise, read_dtype, read_weights, run, to_numpy
from tests.plain import POLICIES, ROUNDING, normal
from tests.runs import sample

pytestmark = pytest.mark.every_backend

X, CONTEXT = normal(2, 3, 8), normal(2, 6, 5, seed=1)


def built(x, context=None, **arguments):
    """A layer of two heads with random weights, built for the inputs."""
    layer = Attention(2, name="attention", **arguments)
    layer.build(x.shape, None if context is None else context.shape)
    return randomise(layer)


FORMS = {
    "self": (None, None, {}),
    "cross": (CONTEXT, None, {}),
    "bias": (CONTEXT, normal(1, 2, 3, 6, seed=2), {}),
    **{
        f"{norm} norm by {over}": (CONTEXT, None, {"qk_norm": over, "norm": norm, "epsilon": 0.1})
        for norm in ("layer", "rms")
        for over in ("head", "width")
    },
}
"""A context of other tokens and width, a bias of the scores, and fields of the block."""


@pytest.mark.parametrize("form", sample(FORMS, *[*FORMS][::2]))
def test_outputs_and_weights_equal_the_formulas(form):
    """Also where the weights are formed; the norms of queries and keys have their own scales."""
    context, bias, block = FORMS[form]
    layer = built(X, context, block=block)
    others = X if context is None else context
    terms = (X, others, read_weights(layer), "", layer.block, 0 if bias is None else bias)
    expected = formulas.attention(*terms)
    assert_close(run(layer, X, context, bias=bias), expected)
    assert_close(layer(X, context, bias=bias, read_weights=lambda weights: weights), expected)
    weights = layer.attention_weights(X, context, bias=bias)
    assert_close(weights, formulas.attention_weights(*terms))


@pytest.mark.parametrize("policy", sample(POLICIES, *POLICIES[:2]))
def test_masked_tokens_do_not_influence_the_others(policy):
    """Each sequence gives what it gives alone, without its padding, which may be any number."""
    layer = built(X, CONTEXT, dtype=policy)
    lengths = (4, 6)
    mask = np.arange(6) < np.array(lengths)[:, None]
    padded = np.where(mask[..., None], CONTEXT, 1e3 * normal(2, 6, 5, seed=2))
    found = run(layer, X, padded, mask=mask)
    alone = [run(layer, X[i : i + 1], CONTEXT[i : i + 1, :n]) for i, n in enumerate(lengths)]
    assert_close(found, np.concatenate(alone), 1e-6 if policy == "float32" else ROUNDING[policy])
    weights = to_numpy(layer.attention_weights(X, padded, mask=mask))
    assert (weights[0, :, :, 4:] == 0).all()


@pytest.mark.parametrize("policy", sample(POLICIES, *POLICIES[:2]))
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
    parts = np.einsum("hd,hdm->hm", formulas.heads(x[:1], w, "value")[0, 0], w["out/kernel"])
    kept = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
    outcomes = 2 * kept @ parts + w["out/bias"]
    found = run(layer, x, training=True)[:, 0]
    distance = np.abs(found[:, None] - outcomes).max(-1)
    assert (distance.min(1) < 1e-5).all()
    assert set(distance.argmin(1)) == {0, 1, 2, 3}
