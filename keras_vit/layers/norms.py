"""LayerNorm, RMSNorm and GroupNorm."""

import keras
from keras import ops

from keras_vit import kernels
from keras_vit.errors import ConfigError
from keras_vit.kernels import reference
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.precision import float32_under_mixed


@keras.saving.register_keras_serializable("keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """A faster `keras.layers.LayerNormalization` with the same arguments and weights.

    `keras_vit.kernels` computes norms of the last axis with scale and shift; plain
    operations of `keras.ops` compute all other norms.

    Raises:
        ConfigError: `rms_scaling=True`, which Keras has deprecated: it divides by the standard
            deviation. `keras.layers.RMSNormalization` divides by the root mean square.
    """

    def __init__(self, *args, **kwargs):
        if kwargs.get("rms_scaling"):
            raise ConfigError(
                "LayerNorm takes no rms_scaling=True: Keras then divides by the standard "
                "deviation, not by the root mean square. Use keras.layers.RMSNormalization."
            )
        super().__init__(*args, **kwargs)

    def build(self, input_shape):
        axis = self.axis
        super().build(input_shape)
        # Keras 3.16 counts the axes of this shape from its front; pooled vectors and tokens share
        # only their last axis.
        self.axis = [axis] if isinstance(axis, int) else list(axis)

    def is_fast(self, rank):
        """Whether `keras_vit.kernels` computes the norm of a tensor with `rank` axes."""
        is_of_last = [axis % rank for axis in self.axis] == [rank - 1]
        return is_of_last and self.scale and self.center

    def call(self, inputs):
        dtype, rank = self.compute_dtype, len(inputs.shape)
        if self.is_fast(rank):
            gamma, beta = kernels.tensor(self.gamma), kernels.tensor(self.beta)
            return kernels.tensor(kernels.layer_norm(inputs, gamma, beta, self.epsilon), dtype)
        axes = sorted(axis % rank for axis in self.axis)
        normal = reference.normalise(inputs, (tuple(axes),), self.epsilon)
        return ops.cast(reference.scaled(normal, self.gamma, self.beta, axes), dtype)


@keras.saving.register_keras_serializable("keras_vit")
class RMSNorm(ConfiguredLayer):
    """Root mean square norm of the last axis (Zhang and Sennrich 2019).

    Computes `x / sqrt(mean(x^2) + epsilon) * gamma` in float32 at least. Unlike LayerNorm, it
    neither subtracts the mean nor adds a bias. Input and output `(..., hidden_size)`.

    Args:
        epsilon: added to the mean of the squares.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.autocast = False  # inputs keep their float type until `call`, as in LayerNorm

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer="ones")

    def call(self, inputs):
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        x = ops.cast(inputs, dtype)
        scale = ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + self.epsilon)
        return ops.cast(x * scale * ops.cast(self.gamma, dtype), self.compute_dtype)


NORMS = {"layer": LayerNorm, "rms": RMSNorm}


def norm_layer(block, policy, name):
    """Makes a norm of the model, which computes in float32 under a mixed policy.

    Args:
        block: the `keras_vit.config.Block` with its kind and epsilon.
        policy: dtype policy of the surrounding layer.
        name: name of the layer.
    """
    return NORMS[block.norm](epsilon=block.epsilon, dtype=float32_under_mixed(policy), name=name)


@keras.saving.register_keras_serializable("keras_vit")
class GroupNorm(keras.layers.GroupNormalization):
    """A more accurate `keras.layers.GroupNormalization` (arXiv 1803.08494), and faster on PyTorch.

    It has the same arguments and weights, and derivatives of any order. The mean over the pixels is
    computed before the mean over the channels of a group. If torch computes both at once with
    channels last, it accumulates in a single float32 value: the variance of 112 x 112 pixels is
    off by 4e-6, and the computation takes six times as long.
    """

    def call(self, inputs):
        axis, shape = self.axis % len(inputs.shape), ops.shape(inputs)
        groups = (self.groups, inputs.shape[axis] // self.groups)
        x = ops.reshape(inputs, (-1, *shape[1:axis], *groups, *shape[axis + 1 :]))
        pixels = tuple(a for a in range(1, len(x.shape)) if a not in (axis, axis + 1))
        x = ops.reshape(reference.normalise(x, (pixels, (axis + 1,)), self.epsilon), shape)
        return ops.cast(reference.scaled(x, self.gamma, self.beta, [axis]), self.compute_dtype)
