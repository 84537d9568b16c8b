"""Relative position bias: a learned bias of attention per distance of two patches (BEiT)."""

import keras
from keras import ops

from keras_vit.errors import ConfigError
from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable("keras_vit")
class RelativePositionBias(ConfiguredLayer):
    """Computes a learned attention bias from the distances of patches (arXiv 2106.08254).

    Input: tokens `(batch, tokens, ...)`, of which only the number is read. Output
    `(1, heads, tokens, tokens)`, for the argument `bias` of `Attention`: for query (i, j) and key
    (k, l) the row of the distance (i - k, j - l) in the table, a weight `(distances, heads)`.

    The table has (2 rows - 1)(2 columns - 1) distances, row by row from the most negative. With
    prefix tokens, which precede the patches, it ends with three more rows: from a prefix token
    to a patch, from a patch to a prefix token, and between two prefix tokens. It is initialised to
    zero.

    Args:
        num_heads: number of heads.
        grid: (rows, columns) of the patches.
        num_prefix_tokens: tokens before the patches.

    Raises:
        ConfigError: the input has another number of tokens.
    """

    def __init__(self, num_heads, grid, num_prefix_tokens=1, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, inputs_shape):
        rows, columns = self.grid
        tokens = rows * columns + self.num_prefix_tokens
        if inputs_shape[1] not in (None, tokens):
            raise ConfigError(
                f"{inputs_shape[1]} tokens do not fit grid={self.grid} with "
                f"num_prefix_tokens={self.num_prefix_tokens}, which has {tokens}."
            )
        self.table = self.add_weight(
            name="table",
            shape=(self._num_distances(), self.num_heads),
            initializer="zeros",
        )

    def call(self, inputs):
        # torch's exporter to ONNX has bugs in other forms of `take`.
        bias = ops.take(self.table, self._distances(), axis=0)  # (tokens, tokens, heads)
        return ops.transpose(bias, (2, 0, 1))[None]

    def _num_distances(self):
        rows, columns = self.grid
        return (2 * rows - 1) * (2 * columns - 1) + (3 if self.num_prefix_tokens else 0)

    def _distances(self):
        """Returns the row of the table for each query and key, int32 `(tokens, tokens)`."""
        (rows, columns), others = self.grid, self.num_prefix_tokens
        step = 2 * columns - 1
        patches = ops.arange(rows, dtype="int32")[:, None] * step
        patches = ops.reshape(patches + ops.arange(columns, dtype="int32"), (-1,))
        distances = patches[:, None] - patches[None] + (rows - 1) * step + columns - 1
        if not others:
            return distances
        count, last = rows * columns, self._num_distances() - 1
        first = ops.full((others, others), last, dtype="int32")
        to_patches = ops.full((others, count), last - 2, dtype="int32")
        to_others = ops.full((count, others), last - 1, dtype="int32")
        return ops.concatenate(
            [
                ops.concatenate([first, to_patches], axis=1),
                ops.concatenate([to_others, distances], axis=1),
            ]
        )

    def compute_output_shape(self, inputs_shape):
        tokens = self.grid[0] * self.grid[1] + self.num_prefix_tokens
        return 1, self.num_heads, tokens, tokens
