"""The encoder block against Eqs. 2 and 3."""

import keras
import numpy as np
import pytest

from keras_vit.layers import TransformerBlock
from tests import formulas
from tests.helpers import (
    assert_close,
    output_and_gradients,
    randomise,
    read_dtype,
    read_weights,
    run,
    to_numpy,
)
from tests.plain import MIXED_POLICIES, normal

pytestmark = pytest.mark.every_backend


def built(x, **arguments):
    """A block of two heads and `mlp_dim=16` with random weights, built for the input."""
    block = TransformerBlock(2, 16, name="block", **arguments)
    block.build(x.shape)
    return randomise(block)


@pytest.mark.parametrize("policy", MIXED_POLICIES)
def test_norms_are_float32(policy):
    """Under a mixed policy both norms compute and return float32."""
    block = built(normal(2, 6, 8), dtype=policy)
    x = 300 + normal(2, 6, 8)  # 16 bits resolve 300 in steps of 0.25 or 2
    for name in ("attention_norm", "mlp_norm"):
        found = getattr(block, name)(x)
        assert read_dtype(found) == "float32"
        expected = formulas.layer_norm(x.astype("float64"), read_weights(block), name)
        assert_close(found, expected, 1e-4)


def test_each_rate_reaches_its_layer():
    block = built(
        normal(2, 6, 8), dropout_rate=0.1, attention_dropout_rate=0.2, stochastic_depth_rate=0.3
    )
    assert (block.dropout.rate, block.mlp.dropout_rate) == (0.1, 0.1)
    assert block.attention.dropout_rate == 0.2
    assert block.stochastic_depth.rate == 0.3


def test_stochastic_depth_skips_each_branch_independently():
    """Of 64 equal examples, some skip no branch, some either branch, and some both."""
    x = np.repeat(normal(1, 6, 8), 64, axis=0)
    block = built(x, stochastic_depth_rate=0.5)
    w = read_weights(block)
    outcomes = []
    for first in (0, 2):
        y = formulas.layer_norm(x[:1], w, "attention_norm")
        z = first * formulas.attention(y, y, w, "attention/") + x[:1]
        rest = formulas.mlp(formulas.layer_norm(z, w, "mlp_norm"), w, at="mlp/")
        outcomes += [second * rest[0] + z[0] for second in (0, 2)]
    found = run(block, x, training=True)
    distance = np.abs(found[:, None] - np.array(outcomes)).max((2, 3))
    assert (distance.min(1) < 1e-4).all()
    assert set(distance.argmin(1)) == {0, 1, 2, 3}


@pytest.mark.parametrize("remat", [False, True])
def test_masked_tokens_move_neither_outputs_nor_gradients(remat):
    """Also in training with attention dropout's own path; gradients of padding alone are finite."""
    x = normal(2, 6, 8)
    mask = np.array([[True] * 4 + [False] * 2, [False] * 6])
    bias = normal(1, 2, 6, 6, seed=3)
    block = built(x, remat=remat)
    found, by_x, by_bias = step(block, x, bias, mask)
    alone, own_by_x, own_by_bias = step(block, x[:1, :4], bias[:, :, :4, :4], mask[:1, :4])
    assert_close(found[:1, :4], alone, 1e-6)
    assert_close(by_x[:1, :4], own_by_x, 1e-5)
    assert np.isfinite(by_x).all() and np.isfinite(by_bias).all()
    assert np.abs(own_by_bias).max() > 0


def step(block, x, bias, mask):
    """The output in training, and the gradients of the sum of squares of its unmasked tokens."""

    def loss(x, bias):
        y = block(x, bias=bias, mask=keras.ops.convert_to_tensor(mask), training=True)
        real = keras.ops.cast(mask, "float32")[..., None]
        return keras.ops.sum(keras.ops.square(y * real)), y

    inputs = [keras.ops.convert_to_tensor(array) for array in (x, bias)]
    output, gradients = output_and_gradients(loss, inputs)
    return [to_numpy(tensor) for tensor in (output, *gradients)]


def test_dropout_follows_the_attention():
    """With an MLP that returns zero, about half of the output values equal the input."""
    x = normal(64, 6, 8)
    block = built(x, dropout_rate=0.5)
    for weight in block.mlp.dense_1.weights:
        weight.assign(np.zeros(weight.shape))
    same = run(block, x, training=True) == x
    assert 0.4 < same.mean() < 0.6
