"""The learned [class] token of Eq. 1."""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable("keras_vit")
class ClassToken(ConfiguredLayer):
    """Puts one learned token in front of a sequence: `[x_class; x_1; ...; x_N]` (Eq. 1).

    Input `(batch, tokens, hidden_size)`, output `(batch, 1 + tokens, hidden_size)`.
    The token starts at zero, as in `vit_jax/models_vit.py`.
    """

    def build(self, input_shape):
        self.token = self.add_weight(
            name="token", shape=(1, 1, input_shape[-1]), initializer="zeros"
        )

    def call(self, inputs):
        shape = ops.shape(inputs)
        token = ops.cast(self.token, inputs.dtype)
        return ops.concatenate([ops.broadcast_to(token, (shape[0], 1, shape[2])), inputs], axis=1)

    def compute_output_shape(self, input_shape):
        batch, tokens, hidden_size = input_shape
        return batch, None if tokens is None else tokens + 1, hidden_size
