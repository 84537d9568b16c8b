"""Arguments and inputs that layers refuse."""

import pytest

from keras_vit.errors import ConfigError
from keras_vit.layers import (
    AddPositionEmbs,
    Attention,
    LayerNorm,
    Pool,
    RotaryPositions,
    StochasticDepth,
)
from keras_vit.layers.dense import Dense
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.relative_position_bias import RelativePositionBias
from tests.helpers import tiny
from tests.plain import normal


def attend(**arguments):
    """The weights of attention over 15 tokens, which a rotary table may turn."""
    table = arguments.pop("rotary", None)
    layer = Attention(2, **arguments)
    layer.build((1, 15, 16))
    layer.attention_weights(X, rotary=table)


def biased(**fields):
    tiny(relative_position_bias="block", **fields)


X, SEVEN = normal(1, 15, 16), normal(1, 7, 8)
REFUSALS = {
    "heads that divide no width": (lambda w: Attention(2)(X[..., :9]), ConfigError, "num_heads=2"),
    "block": (lambda w: Attention(2, block="rms"), ConfigError, "'rms'"),
    "rope without a table": (lambda w: attend(rope={"form": "axial"}), ConfigError, "without"),
    "a table without rope": (lambda w: attend(rotary=X), ConfigError, "rope=None"),
    "width of a head": (lambda w: RotaryPositions(6), ConfigError, "6"),
    "dropout": (lambda w: Dropout(1.5), ConfigError, "[0, 1], found 1.5"),
    "a depth of one": (lambda w: StochasticDepth(1.0), ConfigError, "1.0"),
    "pool": (lambda w: Pool("max"), ConfigError, "kind='max'"),
    "no square": (lambda w: AddPositionEmbs(None)(SEVEN), ConfigError, "7 tokens"),
    "another grid": (lambda w: AddPositionEmbs((2, 3))(SEVEN), ConfigError, "patches"),
    "distances": (lambda w: RelativePositionBias(3, (2, 3), 0)(SEVEN), ConfigError, "7 tokens"),
    "no grid": (lambda w: biased(image_size=None, position_grid=(4, 4)), ConfigError, "'block'"),
    "scaling": (lambda w: LayerNorm(rms_scaling=True), ConfigError, "RMSNormalization"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)


class Doubled(Dense):
    """A subclass may compute something else; Keras refuses subclasses of its layers as well."""


def test_a_subclass_of_dense_is_not_quantised():
    layer = Doubled(4)
    layer.build((None, 8))
    with pytest.raises(NotImplementedError):
        layer.quantize("int8")
