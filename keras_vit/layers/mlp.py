"""The MLP of Eq. 3."""

import keras

from keras_vit import kernels
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.dense import Dense
from keras_vit.layers.initializers import RandomNormal, XavierUniform


@kernels.direct
@keras.saving.register_keras_serializable("keras_vit")
class MLP(ConfiguredLayer):
    """Two Dense layers with a GELU between them (section 3.1, `MlpBlock` of the reference).

    Input and output `(batch, tokens, hidden_size)`.

    Args:
        mlp_dim: width of the hidden layer.
        dropout_rate: after each Dense layer, in training.
        gelu: `"tanh"` (the official code) or `"exact"`.
    """

    def __init__(self, mlp_dim, dropout_rate=0.0, gelu="tanh", **kwargs):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.gelu = gelu

    def build(self, input_shape):
        self.dense_0 = self._dense(self.mlp_dim, "dense_0")
        self.dense_1 = self._dense(input_shape[-1], "dense_1")
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.dense_0.build(input_shape)
        self.dropout.build(input_shape)
        self.dense_1.build((*input_shape[:-1], self.mlp_dim))

    def _dense(self, units, name):
        return Dense(
            units,
            kernel_initializer=XavierUniform(),
            bias_initializer=RandomNormal(stddev=1e-6),
            dtype=self.dtype_policy,
            name=name,
        )

    def call(self, inputs, training=None):
        x = kernels.gelu(kernels.call_part(self, self.dense_0, inputs), self.gelu == "tanh")
        x = kernels.call_part(self, self.dense_1, self._drop(x, training))
        return self._drop(x, training)

    def _drop(self, x, training):
        drops = training and self.dropout_rate > 0
        return self.dropout(x, training=True) if drops else x

    def compute_output_shape(self, input_shape):
        return input_shape
