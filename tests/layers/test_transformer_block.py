"""The encoder block against Eqs. 2 and 3; its MLP, and what drops values in training."""

import keras
import numpy as np
import pytest

from keras_vit.config import Block
from keras_vit.layers import MLP, StochasticDepth, TransformerBlock
from keras_vit.layers.dropout import Dropout
from tests import formulas
from tests.helpers import (
    assert_close,
    output_and_gradients,
    randomise,
    read_weights,
    run,
    tiny,
    to_numpy,
)
from tests.plain import POLICIES, normal
from tests.runs import sample

pytestmark = pytest.mark.every_backend


def built(layer, x):
    """The layer with random weights, built for the input."""
    layer.build(x.shape)
    return randomise(layer)


def block_for(x, **arguments):
    """A block of two heads and `mlp_dim=16`."""
    return built(TransformerBlock(2, 16, name="block", **arguments), x)


GATED = [{"gated": True, "activation": name} for name in ("silu", "gelu", "quick_gelu")]
NORMED = [{"sub_norm": "both", "norm": name, "mlp_bias": False} for name in ("layer", "rms")]


@pytest.mark.parametrize("block", [*GATED, *NORMED], ids=str)
def test_an_mlp_equals_the_formula(block):
    """With a gate, W_1 (act(W_gate x) * W_value x); a norm precedes the last product."""
    x, config = 2 * normal(2, 6, 8), Block(epsilon=0.1, **block)
    layer = built(MLP(16, name="mlp", block=config), x)
    assert_close(run(layer, x), formulas.mlp(x, read_weights(layer), config), 2e-6)


def test_biases_of_an_mlp_start_near_zero():
    """Normal with a standard deviation of 1e-6, as in the reference."""
    layer = MLP(64, name="mlp")
    layer.build((None, 2, 64))
    biases = [value for path, value in read_weights(layer).items() if path.endswith("bias")]
    assert len(biases) == 2
    assert all(5e-7 < bias.std() < 2e-6 for bias in biases)


def test_dropout_of_an_mlp_acts_on_the_hidden_layer_and_on_the_output():
    """Over equal examples, half of the outputs are zero, and the others have many values."""
    x = np.repeat(normal(1, 1, 8), 256, axis=0)
    actual = run(built(MLP(16, dropout_rate=0.5), x), x, training=True)[:, 0, 0]
    assert 0.3 < (actual == 0).mean() < 0.7
    assert len(np.unique(actual[actual != 0].round(4))) > 10


def test_each_rate_reaches_its_layer():
    rates = {"dropout_rate": 0.1, "attention_dropout_rate": 0.2, "stochastic_depth_rate": 0.3}
    block = block_for(normal(2, 6, 8), **rates)
    assert (block.dropout.rate, block.mlp.dropout_rate) == (0.1, 0.1)
    assert (block.attention.dropout_rate, block.stochastic_depth.rate) == (0.2, 0.3)


def test_stochastic_depth_skips_each_branch_independently():
    """Of 64 equal examples, some skip no branch, some either branch, and some both."""
    x = np.repeat(normal(1, 6, 8), 64, axis=0)
    block = block_for(x, stochastic_depth_rate=0.5)
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
    block = block_for(x, remat=remat)
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
    block = block_for(x, dropout_rate=0.5)
    for weight in block.mlp.dense_1.weights:
        weight.assign(np.zeros(weight.shape))
    same = run(block, x, training=True) == x
    assert 0.4 < same.mean() < 0.6


SHAPES = [(2000,), (2000, 2, 3), (2000, 2, 3, 4)]


@pytest.mark.parametrize("shape", sample(SHAPES, SHAPES[1]))
@pytest.mark.parametrize("policy", sample(POLICIES, *POLICIES[:2]))
def test_stochastic_depth_drops_whole_examples_and_enlarges_the_others(policy, shape):
    """Every example is zero or `x / (1 - rate)`; the share of zeros is about `rate`.

    One seed repeats the draws.
    """
    x = np.ones(shape, "float32")
    depths = (StochasticDepth(0.75, seed=seed, dtype=policy) for seed in (7, 7, 8))
    actual, again, other = (run(each, x, training=True).reshape(2000, -1) for each in depths)
    np.testing.assert_array_equal(actual, again)
    assert not np.array_equal(actual, other)
    assert (actual == actual[:, :1]).all()
    assert set(np.unique(actual)) == {0.0, 4.0}
    assert abs((actual[:, 0] == 0).mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 2000)


@pytest.mark.parametrize("noise_shape", [None, (40, 1)])
def test_dropout_with_a_seed_drops_the_values_that_keras_drops(noise_shape):
    """Also after a round trip of its config."""
    x = np.ones((40, 50), "float32")
    arguments = {"rate": 0.3, "noise_shape": noise_shape, "seed": 3}
    expected = run(keras.layers.Dropout(**arguments), x, training=True)
    for layer in (Dropout(**arguments), Dropout.from_config(Dropout(**arguments).get_config())):
        np.testing.assert_array_equal(run(layer, x, training=True), expected)
    np.testing.assert_array_equal(to_numpy(layer(x)), x)


RATES = dict.fromkeys(("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"), 0.1)


def test_equal_models_have_equal_variable_paths():
    """Seed generators too, whichever models were made before; no two paths are equal."""
    first, second = ([v.path for v in tiny(**RATES).variables] for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first)
    assert sum("seed" in path for path in first) == 4


# This way of saving is torch's.
@pytest.mark.on_backend("torch")
def test_an_equal_model_loads_the_state_dict_of_a_model():
    """Its dropout then draws the same numbers."""
    first, second = tiny(**RATES), tiny(**RATES)
    images = np.ones((2, 16, 16, 3), "float32")
    second.load_state_dict(first.state_dict())
    outputs = [to_numpy(model(images, training=True)) for model in (first, second)]
    np.testing.assert_array_equal(*outputs)
