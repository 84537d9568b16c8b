"""Packed patches (NaFlex): a batch of images of different shapes, with one row for each patch."""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable("keras_vit")
class UnpackPatches(ConfiguredLayer):
    """Splits packed patches into pixels, positions and mask, see `keras_vit.images.packing`.

    Input `(batch, patches, rows * columns * channels + 2)`: the pixels of a patch, followed by
    its row and column in its image, both -1 for padding. Output: the pixels as images with one
    column of patches, `(batch, patches * rows, columns, channels)`; the positions, int32
    `(batch, patches, 2)`; and the mask of all tokens, bool `(batch, num_prefix_tokens + patches)`,
    False for padding.

    Args:
        patch_size: pixels of a patch (rows, columns).
        channels: channels of the images.
        num_prefix_tokens: number of tokens that will precede the patches.
    """

    def __init__(self, patch_size, channels, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.patch_size = tuple(patch_size)
        self.channels = channels
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, input_shape):
        pass

    def call(self, inputs):
        rows, columns = self.patch_size
        shape = (-1, inputs.shape[1] * rows, columns, self.channels)
        pixels = ops.reshape(inputs[..., :-2], shape)
        places = ops.cast(inputs[..., -2:], "int32")
        patches = places[..., 0] >= 0
        others = [ops.ones_like(patches[:, :1])] * self.num_prefix_tokens
        return pixels, places, ops.concatenate([*others, patches], axis=1)

    def compute_output_spec(self, inputs):
        batch, patches, _ = inputs.shape
        rows, columns = self.patch_size
        tokens = self.num_prefix_tokens + patches
        return (
            keras.KerasTensor((batch, patches * rows, columns, self.channels), self.compute_dtype),
            keras.KerasTensor((batch, patches, 2), "int32"),
            keras.KerasTensor((batch, tokens), "bool"),
        )
