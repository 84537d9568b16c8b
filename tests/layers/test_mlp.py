"""The MLP of Eq. 3, with all activations, gates, sub-norms and dropout."""

import numpy as np
import pytest

from keras_vit.layers import MLP
from tests import formulas
from tests.helpers import assert_close, randomise, read_weights, run
from tests.plain import normal

pytestmark = pytest.mark.every_backend


def built(x, **arguments):
    """An MLP with `mlp_dim=16` and random weights, built for the input."""
    layer = MLP(16, name="mlp", **arguments)
    layer.build(x.shape)
    return randomise(layer)


@pytest.mark.parametrize("activation", ["silu", "gelu", "quick_gelu"])
def test_a_gated_mlp_multiplies_the_value_by_the_activated_gate(activation):
    """W_1 (act(W_gate x) * W_value x)."""
    x = 2 * normal(2, 6, 8)
    layer = built(x, block={"gated": True, "activation": activation})
    w = read_weights(layer)
    gate, value = (x @ w[f"{n}/kernel"] + w[f"{n}/bias"] for n in ("gate", "value"))
    expected = formulas.activate(gate, activation) * value @ w["dense_1/kernel"] + w["dense_1/bias"]
    assert_close(run(layer, x), expected, 2e-6)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_sub_norm_precedes_the_last_product(kind):
    """W_1 norm(gelu(W_0 x)), without biases."""
    x = 2 * normal(2, 6, 8)
    block = {"sub_norm": "both", "norm": kind, "epsilon": 0.1, "mlp_bias": False}
    layer = built(x, block=block)
    w = read_weights(layer)
    hidden = formulas.activate(x @ w["dense_0/kernel"], "gelu_tanh")
    norm = {"layer": formulas.layer_norm, "rms": formulas.rms_norm}[kind]
    assert_close(run(layer, x), norm(hidden, w, "sub_norm", 0.1) @ w["dense_1/kernel"], 2e-6)


def test_biases_start_near_zero():
    """Normal with a standard deviation of 1e-6, as in the reference."""
    layer = MLP(64, name="mlp")
    layer.build((None, 2, 64))
    biases = [value for path, value in read_weights(layer).items() if path.endswith("bias")]
    assert all(5e-7 < bias.std() < 2e-6 for bias in biases)


def test_dropout_acts_on_the_hidden_layer_and_on_the_output():
    """Over equal examples, half of the outputs are zero, and the others have many values."""
    x = np.repeat(normal(1, 1, 8), 256, axis=0)
    layer = built(x, dropout_rate=0.5)
    actual = run(layer, x, training=True)[:, 0, 0]
    assert 0.3 < (actual == 0).mean() < 0.7
    assert len(np.unique(actual[actual != 0].round(4))) > 10
