"""Appendix D.4: positions none, 1-D, 2-D and relative; once, at every layer, and shared.

python examples/paper/d4_positions.py 5
"""

import sys

import keras
import numpy as np
from digits import SIDE, score
from keras import ops

from keras_vit import layers

steps = int(sys.argv[1])


class TwoDimensional(layers.AddPositionEmbs):
    """Half of the channels say the row, the other half the column."""

    def build(self, input_shape):
        self.rows = self.add_weight(shape=(SIDE, 1, input_shape[-1] // 2), name="rows")
        self.columns = self.add_weight(shape=(1, SIDE, input_shape[-1] // 2), name="columns")

    def call(self, inputs, patches=None):
        shape = (SIDE, SIDE, self.rows.shape[-1])
        parts = [ops.broadcast_to(part, shape) for part in (self.rows, self.columns)]
        return inputs + ops.reshape(ops.concatenate(parts, axis=-1), (1, SIDE**2, -1))


class RelativeAttention(layers.Attention):
    """A learned number for each head and offset (row, column) is added to the scores."""

    def build(self, inputs_shape):
        super().build(inputs_shape)
        self.table = self.add_weight(shape=(self.num_heads, (2 * SIDE - 1) ** 2), name="table")
        cells = np.stack(np.divmod(np.arange(SIDE**2), SIDE), axis=-1)
        offsets = cells[:, None] - cells[None] + SIDE - 1
        self.offsets = offsets[..., 0] * (2 * SIDE - 1) + offsets[..., 1]

    def call(self, inputs, context=None, rotary=None, training=None):
        query, key, value = self.query(inputs), self.key(inputs), self.value(inputs)
        scores = ops.einsum("bthd,bshd->bhts", query, key) / query.shape[-1] ** 0.5
        scores = scores + ops.take(self.table, self.offsets, axis=1)
        return self.out(ops.einsum("bhts,bshd->bthd", ops.softmax(scores), value))


class RelativeBlock(layers.TransformerBlock):
    """A block with relative attention."""

    def build(self, inputs_shape):
        super().build(inputs_shape)
        del self.attention
        self.attention = RelativeAttention(self.num_heads, name="attention")
        self.attention.build(inputs_shape)


def encoder(position, every_layer=False, shared=False):
    """Returns three blocks with one kind of positions, and the mean of their tokens."""
    tokens = patches = keras.Input((SIDE**2, 32))
    made = {"1-D": layers.AddPositionEmbs, "2-D": TwoDimensional}.get(position)
    one = made((SIDE, SIDE)) if made else None
    for k in range(3):
        if made and (every_layer or k == 0):
            tokens = (one if shared or k == 0 else made((SIDE, SIDE)))(tokens)
        kind = RelativeBlock if position == "relative" else layers.TransformerBlock
        tokens = kind(num_heads=4, mlp_dim=64)(tokens)
    return keras.Model(patches, ops.mean(tokens, axis=1))


for options in (
    ("none",), ("1-D",), ("2-D",), ("relative",), ("1-D", True), ("1-D", True, True)
):  # fmt: skip
    print(options, f"{score(encoder(*options), steps):.1%}")
