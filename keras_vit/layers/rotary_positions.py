"""Rotary position embeddings of a grid of patches (RoPE; Su et al. 2021, arXiv 2104.09864).

Queries and keys are rotated by angles that depend on the row and column of their patch, so that
their product depends on the distance between two patches.
"""

import math

import keras
from keras import ops

from keras_vit.config import Rope
from keras_vit.errors import ConfigError
from keras_vit.kernels import sizes
from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable("keras_vit")
class RotaryPositions(ConfiguredLayer):
    """Computes the angles of rotary position embeddings for a grid of patches, once per model.

    Input: `patches`, any tensor `(batch, rows, columns, ...)`, of which only rows and columns are
    read; images may have any size. With frequencies f_k = theta^(-4k / head_dim),
    k = 0 ... head_dim / 4 - 1, patch (i, j) has the angles::

        "dinov3":  y = 2 (i + 0.5) / rows - 1,  x alike;  2 pi [y f, x f]         (DINOv3)
        "axial":   y = i / rows * reference rows,  x alike;  [y f, x f]           (EVA-02)
        "mixed":   y = i,  x alike;  each block and head has learned frequencies for
                   both (Heo et al. 2024, arXiv 2403.13298)

    Without a reference grid y is i. The forms with "_xy" put x before y, and "axial_xy_from_1"
    counts patches from 1 (Perception Encoder).

    Output, computed in float32 under every policy: cosines and sines
    `(2, tokens, head_dim)` of every pair of channels, in the order that `kernels.rotate` expects;
    `(tokens, 2)` coordinates for learned frequencies. Prefix tokens come first; their angle is 0,
    so they are not rotated.

    Args:
        head_dim: channels of a head, a multiple of 4.
        form, theta, reference_grid: see `keras_vit.config.Rope`.
        num_prefix_tokens: tokens before the patches, which have no position.

    Raises:
        ConfigError: an argument is invalid, or `head_dim` is not a multiple of 4.
    """

    def __init__(
        self,
        head_dim,
        form="axial",
        theta=10_000.0,
        reference_grid=None,
        num_prefix_tokens=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._rope = Rope(form, theta, reference_grid)
        if head_dim % 4:
            raise ConfigError(f"Rotary positions need a head_dim divisible by 4, found {head_dim}.")
        self.head_dim = head_dim
        self.form = form
        self.theta = theta
        self.reference_grid = self._rope.reference_grid
        self.num_prefix_tokens = num_prefix_tokens
        # Python floats, because torch's compiler does not support NumPy here.
        self._frequencies = tuple(float(theta ** (-4 * k / head_dim)) for k in range(head_dim // 4))

    def call(self, patches):
        rows, columns = ops.shape(patches)[1:3]
        y, x = self._coordinate(rows, 0), self._coordinate(columns, 1)
        # (rows * columns, 1), row by row
        shape = (rows, columns)
        y = ops.reshape(ops.broadcast_to(y[:, None], shape), (-1, 1))
        x = ops.reshape(ops.broadcast_to(x[None], shape), (-1, 1))
        first, second = (x, y) if self._rope.starts_with_columns else (y, x)
        if self._rope.is_learned:
            angles = ops.concatenate([first, second], axis=-1)
        else:
            frequencies = ops.convert_to_tensor(self._frequencies, dtype="float32")
            angles = ops.concatenate([first * frequencies, second * frequencies], axis=-1)
        if self.num_prefix_tokens:  # torch's compiler does not support Keras's `pad`
            zeros = ops.zeros((self.num_prefix_tokens, angles.shape[-1]), angles.dtype)
            angles = ops.concatenate([zeros, angles])
        if not self._rope.is_learned:
            angles = cos_and_sin(angles, self._rope.pairs_neighbours)
        return ops.cast(angles, self.compute_dtype)

    def _coordinate(self, length, axis):
        """Returns the float32 coordinate of each row or column; `length` may be a tensor."""
        steps = sizes.steps(length)
        if self.form == "dinov3":
            return 2 * math.pi * (2 * (steps + 0.5) / sizes.number(length) - 1)
        steps = steps + self._rope.first
        if self.reference_grid is None:
            return steps
        return steps / sizes.number(length) * self.reference_grid[axis]

    def compute_output_shape(self, patches_shape):
        rows, columns = patches_shape[1:3]
        tokens = None
        if rows is not None and columns is not None:
            tokens = rows * columns + self.num_prefix_tokens
        return (tokens, 2) if self._rope.is_learned else (2, tokens, self.head_dim)


def cos_and_sin(angles, pairs_neighbours):
    """Returns cosines and sines `(2, ..., head_dim)` of the angles `(..., head_dim / 2)` of pairs.

    A pair is two neighbouring channels, or two channels half a head apart (`kernels.rotate`).
    """
    both = ops.stack([ops.cos(angles), ops.sin(angles)])
    if pairs_neighbours:
        return ops.repeat(both, 2, axis=-1)
    return ops.concatenate([both, both], axis=-1)
