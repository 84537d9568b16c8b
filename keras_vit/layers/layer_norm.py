"""Layer normalisation in its fastest form."""

import keras
from keras import ops

from keras_vit import kernels
from keras_vit.errors import ConfigError
from keras_vit.kernels import reference


@keras.saving.register_keras_serializable("keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` in the backend's fastest form. Arguments are Keras's.

    `keras_vit.kernels` computes norms of the last axis that have scale and shift; plain
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
        # Keras 3.16 counts the axes of this shape from its front; a pooled vector and tokens have
        # their last axis in common.
        self.axis = [axis] if isinstance(axis, int) else list(axis)

    def is_fast(self, rank):
        """Whether `keras_vit.kernels` computes the norm of a tensor with so many axes."""
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
