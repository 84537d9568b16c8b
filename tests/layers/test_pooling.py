"""Pooling: the class token, the mean of all tokens, and attention pooling."""

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.layers import MAPHead, Pool
from tests.helpers import assert_close, randomise, read_weights, run, to_numpy
from tests.plain import normal, raises

pytestmark = pytest.mark.every_backend

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
    assert not to_numpy(Pool("gap")(x, mask=np.zeros((2, 5), bool))).any()


def test_an_unknown_kind_is_refused():
    """The message names the kind found and the kinds known."""
    with raises(ConfigError, "kind='max'", "token, tokens, gap"):
        Pool("max")


def test_the_mlp_of_attention_pooling_has_no_gate():
    """With gated blocks by SiLU, it has the exact GELU; it always has biases and LayerNorm."""
    x = normal(2, 5, 8)
    plain = map_head(x, block={"activation": "gelu", "epsilon": 0.1})
    block = {"activation": "silu", "epsilon": 0.1, "gated": True, "norm": "rms", "mlp_bias": False}
    np.testing.assert_array_equal(run(map_head(x, block=block), x), run(plain, x))


def map_head(x, **arguments):
    """A MAPHead of two heads and `mlp_dim=16` with random weights, built for the input."""
    layer = MAPHead(2, 16, name="pool", **arguments)
    layer.build(x.shape)
    return randomise(layer)


def test_map_head_starts_with_a_xavier_probe():
    """Uniform within sqrt(6 / (1 + hidden_size)), as in big_vision."""
    layer = MAPHead(2, 16, name="pool")
    layer.build((None, 2, 64))
    probe = read_weights(layer)["probe"]
    limit = np.sqrt(6 / (1 + 64))
    assert probe.shape == (1, 1, 64)
    assert 0.9 * limit < np.abs(probe).max() <= limit
