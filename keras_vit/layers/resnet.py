"""The ResNet stem of a hybrid: BiT's ResNet with standardised kernels and GroupNorm.

Reference: `vit_jax/models_resnet.py` and the "ResNet root" of `models_vit.py`.
"""

import keras
from keras import ops

from keras_vit.config.stem import ARITHMETIC, GROUP_NORM_GROUPS
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.initializers import LecunNormal
from keras_vit.layers.norms import GroupNorm
from keras_vit.layers.precision import float32_under_mixed


@keras.saving.register_keras_serializable("keras_vit")
class StdConv2D(ConfiguredLayer):
    """Convolution without bias whose kernel is standardised per filter (Qiao et al. 2019).

    SAME padding. The standardisation is float32 under every mixed policy.
    Input `(batch, height, width, channels)` or, under `"channels_first"`,
    `(batch, channels, height, width)`; output likewise.

    Args:
        filters: number of output channels.
        kernel_size: rows and columns of the (square) kernel.
        strides: stride in rows and columns.
        arithmetic: `"resnet"` (official code) or `"resnet_timm"`, see `keras_vit.config.Stem`.
        data_format: `"channels_last"`, `"channels_first"` or None for Keras's setting.
    """

    def __init__(
        self,
        filters,
        kernel_size,
        strides=1,
        arithmetic="resnet",
        data_format=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_size = kernel_size
        self.strides = strides
        self.arithmetic = arithmetic
        self.data_format = data_format or keras.config.image_data_format()

    def build(self, input_shape):
        channels = input_shape[-1 if self.data_format == "channels_last" else 1]
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.kernel_size, self.kernel_size, channels, self.filters),
            initializer=LecunNormal(),
            autocast=False,  # standardised in the stored precision
        )

    def standardised_kernel(self):
        """Returns the kernel with mean 0 and deviation about 1 per filter, in its own dtype."""
        kernel = ops.convert_to_tensor(self.kernel)
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
        form = ARITHMETIC[self.arithmetic]
        if form.takes_root_of_sum:
            return kernel / ops.sqrt(variance + form.epsilon)
        return kernel / (ops.sqrt(variance) + form.epsilon)

    def call(self, inputs):
        kernel = ops.cast(self.standardised_kernel(), self.compute_dtype)
        conv = {"strides": self.strides, "padding": "same"}
        if self.data_format == "channels_first" and keras.backend.backend() == "tensorflow":
            # TensorFlow has no float16 convolution of NCHW images on the CPU.
            inputs = ops.transpose(inputs, (0, 2, 3, 1))
            outputs = ops.conv(inputs, kernel, **conv, data_format="channels_last")
            return ops.transpose(outputs, (0, 3, 1, 2))
        return ops.conv(inputs, kernel, **conv, data_format=self.data_format)

    def compute_output_shape(self, input_shape):
        return _same_padded_shape(input_shape, self.filters, self.strides, self.data_format)


def _same_padded_shape(input_shape, filters, strides, data_format):
    """Returns the shape after a SAME convolution or pooling: sides / `strides`, rounded up."""
    last = data_format == "channels_last"
    sides = input_shape[1:3] if last else input_shape[2:4]
    sides = tuple(None if side is None else -(-side // strides) for side in sides)
    return (input_shape[0], *sides, filters) if last else (input_shape[0], filters, *sides)


class _ResNetLayer(ConfiguredLayer):
    """Base class of root and units, which builds pairs of convolution and norm."""

    def __init__(self, arithmetic="resnet", data_format=None, **kwargs):
        super().__init__(**kwargs)
        self.arithmetic = arithmetic
        self.data_format = data_format or keras.config.image_data_format()

    def _pair(self, suffix, input_shape, filters, kernel_size, strides=1, gamma="ones"):
        """Builds a convolution and its norm; returns both and the shape of their output."""
        conv = StdConv2D(
            filters,
            kernel_size,
            strides,
            arithmetic=self.arithmetic,
            data_format=self.data_format,
            dtype=self.dtype_policy,
            name=f"conv{suffix}",
        )
        norm = GroupNorm(
            groups=GROUP_NORM_GROUPS,
            axis=-1 if self.data_format == "channels_last" else 1,
            epsilon=ARITHMETIC[self.arithmetic].norm_epsilon,
            gamma_initializer=gamma,
            dtype=float32_under_mixed(self.dtype_policy),
            name=f"norm{suffix}",
        )
        conv.build(input_shape)
        shape = conv.compute_output_shape(input_shape)
        norm.build(shape)
        return conv, norm, shape


@keras.saving.register_keras_serializable("keras_vit")
class ResNetRoot(_ResNetLayer):
    """The root of the stem: 7x7/2 convolution, GroupNorm, ReLU, 3x3/2 max pool, all SAME.

    Input `(batch, height, width, channels)`, output
    `(batch, ceil(height / 4), ceil(width / 4), filters)`; channels second under
    `"channels_first"`.

    Args:
        filters: output channels, a multiple of 32.
        arithmetic: `"resnet"` or `"resnet_timm"`, see `keras_vit.config.Stem`.
        data_format: `"channels_last"`, `"channels_first"` or None for Keras's setting.
    """

    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters

    def build(self, input_shape):
        self.conv, self.norm, _ = self._pair("", input_shape, self.filters, 7, 2)

    def call(self, inputs):
        x = ops.relu(self.norm(self.conv(inputs)))
        return ops.cast(
            ops.max_pool(x, 3, 2, padding="same", data_format=self.data_format), self.compute_dtype
        )

    def compute_output_shape(self, input_shape):
        halved = _same_padded_shape(input_shape, self.filters, 2, self.data_format)
        return _same_padded_shape(halved, self.filters, 2, self.data_format)


@keras.saving.register_keras_serializable("keras_vit")
class BottleneckUnit(_ResNetLayer):
    """Post-activation bottleneck, 1x1, 3x3 and 1x1 (`ResidualUnit` of the reference).

    The 3x3 convolution has the stride. If the shape changes, a 1x1 convolution
    projects the shortcut. The scale of the last norm is initialised to zero, so that
    a new unit returns its shortcut. Input `(batch, height, width, channels)`,
    output `(batch, ceil(height / strides), ceil(width / strides), 4 * filters)`;
    channels second under `"channels_first"`.

    Args:
        filters: channels inside the bottleneck, a multiple of 32.
        strides: 1 or 2.
        arithmetic: `"resnet"` or `"resnet_timm"`, see `keras_vit.config.Stem`.
        data_format: `"channels_last"`, `"channels_first"` or None for Keras's setting.
    """

    def __init__(self, filters, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides

    def build(self, input_shape):
        channels = input_shape[-1 if self.data_format == "channels_last" else 1]
        self.has_projection = channels != 4 * self.filters or self.strides != 1
        if self.has_projection:
            self.conv_proj, self.norm_proj, _ = self._pair(
                "_proj", input_shape, 4 * self.filters, 1, self.strides
            )
        self.conv1, self.norm1, shape = self._pair("1", input_shape, self.filters, 1)
        self.conv2, self.norm2, shape = self._pair("2", shape, self.filters, 3, self.strides)
        self.conv3, self.norm3, _ = self._pair("3", shape, 4 * self.filters, 1, gamma="zeros")

    def call(self, inputs):
        shortcut = self.norm_proj(self.conv_proj(inputs)) if self.has_projection else inputs
        x = ops.relu(self.norm1(self.conv1(inputs)))
        x = ops.relu(self.norm2(self.conv2(x)))
        x = self.norm3(self.conv3(x))
        return ops.cast(ops.relu(shortcut + x), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return _same_padded_shape(input_shape, 4 * self.filters, self.strides, self.data_format)
