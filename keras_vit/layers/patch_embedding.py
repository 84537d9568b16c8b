"""The patch embedding: a linear projection of flattened patches, x_p E of Eq. 1."""

import keras
from keras import ops

from keras_vit import kernels
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.initializers import LecunNormal


@keras.saving.register_keras_serializable("keras_vit")
class PatchEmbedding(ConfiguredLayer):
    """Splits images into patches and projects each patch to a token (Eq. 1: `x_p E`).

    Input `(batch, height, width, channels)`, or `(batch, channels, height, width)`
    under `"channels_first"`. Output `(batch, rows * columns, hidden_size)`, or
    `(batch, rows, columns, hidden_size)` with `flatten=False`. Rows and columns
    that fill no patch are cropped, as by the VALID convolution of
    `vit_jax/models_vit.py`.

    Args:
        hidden_size: width of a token.
        patch_size: pixels, an int or a pair (rows, columns).
        flatten: whether the patch grid becomes one axis of tokens.
        data_format: `"channels_last"`, `"channels_first"` or None for Keras's setting.
        use_bias: whether a bias is added (CLIP: False).
    """

    def __init__(
        self,
        hidden_size,
        patch_size,
        flatten=True,
        data_format=None,
        use_bias=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.patch_size = (
            (patch_size, patch_size) if isinstance(patch_size, int) else tuple(patch_size)
        )
        self.flatten = flatten
        self.data_format = data_format or keras.config.image_data_format()
        self.use_bias = use_bias

    def build(self, input_shape):
        channels = input_shape[-1 if self.data_format == "channels_last" else 1]
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.patch_size, channels, self.hidden_size),
            initializer=LecunNormal(),
        )
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(self.hidden_size,), initializer="zeros")

    def call(self, inputs):
        if self.data_format == "channels_first":  # from here on channels come last
            inputs = ops.transpose(inputs, (0, 2, 3, 1))
        grid = kernels.patches(inputs, kernels.tensor(self.kernel, self.compute_dtype))
        if self.use_bias:
            grid = ops.add(grid, self.bias)
        if not self.flatten:
            return grid
        batch, rows, columns, hidden_size = ops.shape(grid)
        return ops.reshape(grid, (batch, rows * columns, hidden_size))

    def compute_output_shape(self, input_shape):
        sides = input_shape[1:3] if self.data_format == "channels_last" else input_shape[2:4]
        rows, columns = (
            None if side is None else side // patch
            for side, patch in zip(sides, self.patch_size, strict=True)
        )
        if not self.flatten:
            return input_shape[0], rows, columns, self.hidden_size
        tokens = None if rows is None or columns is None else rows * columns
        return input_shape[0], tokens, self.hidden_size
