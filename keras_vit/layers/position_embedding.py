"""Position embeddings, E_pos of Eq. 1, which are resized for other grids of patches."""

import keras
from keras import ops

from keras_vit.errors import ConfigError
from keras_vit.kernels.sizes import is_known, number, steps
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.initializers import RandomNormal
from keras_vit.support.interpolation import resampling_weights


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbs(ConfiguredLayer):
    """Adds a position embedding to every token (Eq. 1: `+ E_pos`).

    Input and output `(batch, tokens, hidden_size)`, patch tokens row by row from top to bottom.
    Learned embeddings are one weight of shape `(1, tokens, hidden_size)`, initialised with a
    standard deviation of 0.02; `"sincos2d"` is a fixed function of row and column (big_vision,
    `posemb_sincos_2d`) without weights.

    To resize the embeddings of the patches for images with another grid, call the layer with
    `patches`, any tensor `(batch, rows, columns, ...)` of that grid; only rows and columns are
    read. Embeddings of other tokens are not resized.

    For a batch of images with different grids, call the layer with `places`, int
    `(batch, patches, 2)`: row and column of every patch, counted from 0, and -1 for padding. The
    grid of an image ends at its largest row and column.

    Args:
        grid: (rows, columns) of the patches that the embeddings belong to, or
            None to infer a square grid from the first input.
        class_token: whether the first token is a class token. A learned embedding
            then has a row for it; `"sincos2d"` adds zero to it.
        other_tokens: number of tokens between the class token and the patches, such as a
            distillation token or register tokens; they have embeddings like the class token.
        position: `"learned"` or `"sincos2d"`.
        resize: see `position_resize` of `keras_vit.config.ViTConfig`.

    Raises:
        ConfigError: the number of tokens of the first input does not fit the given grid
            or, without a grid, a square grid.
    """

    def __init__(
        self,
        grid=None,
        class_token=False,
        position="learned",
        resize="bilinear_align_corners",
        other_tokens=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid = None if grid is None else tuple(grid)
        self.class_token = class_token
        self.position = position
        self.resize = resize
        self.other_tokens = other_tokens
        self._prefix = int(class_token) + other_tokens
        self._others = f"class_token={class_token}, other_tokens={other_tokens}"

    def build(self, inputs_shape, patches_shape=None, places_shape=None):
        _, tokens, hidden_size = inputs_shape
        if self.grid is None:
            self.grid = self._infer_grid(tokens, patches_shape)
        if patches_shape is places_shape is None and tokens not in (
            None,
            self._num_tokens(self.grid),
        ):
            raise ConfigError(
                f"{tokens} tokens do not fit grid={self.grid} with {self._others}. "
                "Pass the tensor `patches` (batch, rows, columns, ...) of their grid."
            )
        if self.position == "learned":
            self.embedding = self.add_weight(
                name="embedding",
                shape=(1, self._num_tokens(self.grid), hidden_size),
                initializer=RandomNormal(stddev=0.02),
            )

    def load_own_variables(self, store):
        """Loads the embedding; called by Keras, as in `model.load_weights`.

        Raises:
            ConfigError: the stored embedding has another shape than the layer's.
        """
        expected, found = (
            [tuple(value.shape) for value in values]
            for values in (self.weights, map(store.__getitem__, store.keys()))
        )
        if len(found) == len(expected) and found != expected:
            raise ConfigError(
                f"Expected {expected}, found {found}: the embeddings belong to another image size, "
                "or to other learned tokens. Load them into a model like the saved one. "
                "To change the image size, use its save_to_preset(folder), and then "
                "VisionTransformer.from_preset(folder, image_size=...)."
            )
        super().load_own_variables(store)

    def _infer_grid(self, tokens, patches_shape):
        if patches_shape is not None and None not in patches_shape[1:3]:
            return tuple(patches_shape[1:3])
        count = (tokens or 0) - self._prefix
        side = round(max(count, 0) ** 0.5)
        if count < 1 or side * side != count:
            raise ConfigError(
                f"Cannot tell the grid of {tokens} tokens with {self._others}: "
                "pass grid=(rows, columns)."
            )
        return side, side

    def _num_tokens(self, grid):
        return grid[0] * grid[1] + self._prefix

    def call(self, inputs, patches=None, places=None):
        if places is not None:
            return inputs + ops.cast(self._embedding_at(places), inputs.dtype)
        rows, columns = self.grid if patches is None else ops.shape(patches)[1:3]
        return inputs + ops.cast(
            self._compute_embedding(rows, columns, inputs.shape[-1]), inputs.dtype
        )

    def _compute_embedding(self, rows, columns, hidden_size):
        """Returns E_pos `(1, tokens, hidden_size)` for a grid whose sides may be tensors."""
        if self.position == "sincos2d":
            embedding = sincos2d(rows, columns, hidden_size)
            if not self._prefix:
                return embedding
            zeros = ops.zeros((1, self._prefix, hidden_size))  # torch's compiler refuses `ops.pad`
            return ops.concatenate([zeros, embedding], axis=1)
        # Dynamic sizes, as in a graph for images of any size, cannot be compared.
        if is_known(rows, columns) and (rows, columns) == self.grid:
            return self.embedding
        embedding = ops.cast(self.embedding, "float32")
        grid = ops.reshape(embedding[:, self._prefix :], (1, *self.grid, hidden_size))
        ends = [number(rows), number(columns)]
        if self.resize == "bilinear_longer_side":
            ends = 2 * [ops.maximum(*ends)]
        by_row, by_column = (
            resampling_weights(have, end, steps(have), steps(want)[:, None], self.resize, ops)
            for have, end, want in zip(self.grid, ends, (rows, columns), strict=True)
        )
        grid = ops.einsum("ri,bijm->brjm", by_row, grid)
        grid = ops.einsum("cj,brjm->brcm", by_column, grid)
        grid = ops.reshape(grid, (1, rows * columns, hidden_size))
        if not self._prefix:
            return grid
        return ops.concatenate([embedding[:, : self._prefix], grid], axis=1)

    def _embedding_at(self, places):
        """Returns learned E_pos `(batch, tokens, hidden_size)` for images with different grids."""
        embedding = ops.cast(self.embedding, "float32")
        points = ops.cast(places, "float32")  # OpenVINO 2026.4 has a wrong maximum of integers
        sizes = ops.max(points, axis=1, keepdims=True) + 1
        points = ops.maximum(points, 0)  # padding reads the first patch
        by_row, by_column = (
            resampling_weights(
                have, sizes[..., k : k + 1], steps(have), points[..., k : k + 1], self.resize, ops
            )
            for k, have in enumerate(self.grid)
        )
        weights = by_row[..., :, None] * by_column[..., None, :]
        weights = ops.reshape(weights, (-1, places.shape[1], self.grid[0] * self.grid[1]))
        patches = ops.matmul(weights, embedding[0, self._prefix :])
        if not self._prefix:
            return patches
        others = ops.zeros_like(patches[:, :1]) + embedding[:, : self._prefix]
        return ops.concatenate([others, patches], axis=1)


def sincos2d(rows, columns, hidden_size):
    """Returns fixed 2D sine-cosine embeddings, float32 `(1, rows * columns, hidden_size)`.

    Each quarter of the channels holds sin(x w), cos(x w), sin(y w), cos(y w) with frequencies
    w = 10000^(-k / (hidden_size / 4 - 1)). Source: big_vision, `models/vit.py`.
    Rows and columns may be scalar tensors.
    """
    quarter = hidden_size // 4
    # Python floats, because torch's compiler does not support NumPy here.
    frequencies = [1.0 / 10_000 ** (k / (quarter - 1)) for k in range(quarter)]
    frequency = ops.convert_to_tensor(frequencies, dtype="float32")
    y = steps(rows)[:, None] * frequency  # (rows, quarter)
    x = steps(columns)[:, None] * frequency
    shape = (rows, columns, quarter)
    y, x = ops.broadcast_to(y[:, None], shape), ops.broadcast_to(x[None], shape)
    grid = ops.concatenate([ops.sin(x), ops.cos(x), ops.sin(y), ops.cos(y)], axis=-1)
    return ops.reshape(grid, (1, rows * columns, hidden_size))
