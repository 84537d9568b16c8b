"""Layer normalisation in its fastest form."""

import keras
from keras import ops

from keras_vit import kernels


@kernels.direct
@keras.saving.register_keras_serializable("keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras's LayerNormalization of the last axis, computed by `keras_vit.kernels`."""

    def call(self, inputs):
        gamma, beta = ops.convert_to_tensor(self.gamma), ops.convert_to_tensor(self.beta)
        return ops.cast(kernels.layer_norm(inputs, gamma, beta, self.epsilon), self.compute_dtype)
