"""Appendix D.6: axial attention, over the rows and then over the columns, each with an MLP.

python examples/paper/d6_axial.py 5
"""

import sys

import keras
from digits import SIDE, score
from keras import ops

from keras_vit import layers

steps = int(sys.argv[1])


class AxialBlock(keras.layers.Layer):
    """Two Transformer blocks: tokens meet those of their row, then those of their column."""

    def __init__(self, num_heads, mlp_dim):
        super().__init__()
        self.within_rows = layers.TransformerBlock(num_heads, mlp_dim)
        self.within_columns = layers.TransformerBlock(num_heads, mlp_dim)

    def call(self, tokens, training=None):
        width = tokens.shape[-1]
        lines = ops.reshape(tokens, (-1, SIDE, width))  # (batch * rows, columns, width)
        lines = self.within_rows(lines, training=training)
        grid = ops.transpose(ops.reshape(lines, (-1, SIDE, SIDE, width)), (0, 2, 1, 3))
        lines = self.within_columns(ops.reshape(grid, (-1, SIDE, width)), training=training)
        grid = ops.transpose(ops.reshape(lines, (-1, SIDE, SIDE, width)), (0, 2, 1, 3))
        return ops.reshape(grid, (-1, SIDE**2, width))


def encoder(axial):
    """Two axial blocks, or four plain ones: as many weights."""
    tokens = patches = keras.Input((SIDE**2, 32))
    tokens = layers.AddPositionEmbs((SIDE, SIDE))(tokens)
    for _ in range(2 if axial else 4):
        block = AxialBlock(4, 64) if axial else layers.TransformerBlock(4, 64)
        tokens = block(tokens)
    return keras.Model(patches, ops.mean(tokens, axis=1))


for axial in (False, True):
    model = encoder(axial)
    accuracy = score(model, steps)
    print(f"{'axial' if axial else 'plain'}: {accuracy:.1%}, {model.count_params()} weights")
