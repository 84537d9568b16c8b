"""Pooling, heads, the mask token and the patch embedding."""

import keras
import numpy as np
import pytest

from keras_vit.layers import DistilledHead, MAPHead, MaskToken, Pool
from tests.helpers import assert_close, randomise, read_weights, run, to_numpy
from tests.plain import normal

pytestmark = pytest.mark.every_backend

MASK = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]], bool)


def built(layer, *shapes):
    """The layer with random weights."""
    layer.build(*shapes)
    return randomise(layer)


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("kind", ["gap", "token_and_mean", "map"])
def test_masked_tokens_take_no_part_in_the_pooling(kind, skip):
    """The result is that of the other tokens alone, whatever the masked ones hold."""
    x = normal(2, 5, 8)
    layer = built(MAPHead(2, 16, skip=skip), x.shape) if kind == "map" else Pool(kind, skip)
    alone = [run(layer, row[None, keep])[0] for row, keep in zip(x, MASK, strict=True)]
    hidden = np.where(MASK[..., None], x, 1e3).astype("float32")
    assert_close(run(layer, hidden, mask=MASK), np.stack(alone), 1e-6)


def test_a_mean_of_masked_tokens_alone_is_zero():
    """It is finite, as the rows that fill up a batch need."""
    assert not to_numpy(Pool("gap")(normal(2, 5, 8), mask=np.zeros((2, 5), bool))).any()


def test_the_mlp_of_attention_pooling_has_no_gate():
    """With gated blocks by SiLU, it has the exact GELU; it always has biases and LayerNorm."""
    x = normal(2, 5, 8)
    plain = {"activation": "gelu", "epsilon": 0.1}
    gated = {"activation": "silu", "epsilon": 0.1, "gated": True, "norm": "rms", "mlp_bias": False}
    found, expected = (
        run(built(MAPHead(2, 16, block=block), x.shape), x) for block in (gated, plain)
    )
    np.testing.assert_array_equal(found, expected)


def test_map_head_starts_with_a_xavier_probe():
    """Uniform within sqrt(6 / (1 + hidden_size)), as in big_vision."""
    layer = MAPHead(2, 16, name="pool")
    layer.build((None, 2, 64))
    probe, limit = read_weights(layer)["probe"], np.sqrt(6 / (1 + 64))
    assert probe.shape == (1, 1, 64)
    assert 0.9 * limit < np.abs(probe).max() <= limit


def test_the_mask_token_is_a_weight_that_nothing_reads():
    """The input passes unchanged; the token is not trainable."""
    x = normal(2, 3, 8)
    layer = built(MaskToken(name="mask"), x.shape)
    np.testing.assert_array_equal(run(layer, x), x)
    assert read_weights(layer)["token"].shape == (1, 1, 8)
    assert layer.trainable_weights == []


def test_a_distilled_head_averages_the_logits_of_two_heads():
    """`both` returns the logits of each head, which training with a teacher needs."""
    x = normal(3, 2, 8)
    layer = built(DistilledHead(5, name="head"), x.shape)
    w = read_weights(layer)
    expected = [
        x[:, k] @ w[f"{name}/kernel"] + w[f"{name}/bias"]
        for k, name in enumerate(("class", "distillation"))
    ]
    assert_close(run(layer, x), (expected[0] + expected[1]) / 2)
    inputs = keras.Input((2, 8))
    student = keras.Model(inputs, layer.both(inputs))
    for found, logits in zip(student.predict(x, verbose=0), expected, strict=True):
        assert_close(found, logits)
