"""RMSNorm, and the choice between it and LayerNorm."""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.precision import float32_under_mixed


@keras.saving.register_keras_serializable("keras_vit")
class RMSNorm(ConfiguredLayer):
    """`x / sqrt(mean(x^2) + epsilon) * gamma` over the last axis (Zhang and Sennrich 2019).

    Unlike LayerNorm, RMSNorm neither removes the mean nor adds a bias. Input and output
    `(..., hidden_size)`. The layer computes in float32 at least.

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


def norm_layer(kind, epsilon, policy, name):
    """Returns the norm of `kind`, float32 under a mixed policy.

    Args:
        kind: `"layer"` or `"rms"`.
        epsilon: added to the variance.
        policy: dtype policy of the surrounding layer.
        name: name of the layer.
    """
    return NORMS[kind](epsilon=epsilon, dtype=float32_under_mixed(policy), name=name)
