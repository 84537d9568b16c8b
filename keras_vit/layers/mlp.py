"""The MLP of Eq. 3, and its activations."""

from typing import Any

import keras
from keras import ops

from keras_vit import kernels
from keras_vit.config import Block
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.dense import Dense
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.initializers import RandomNormal, XavierUniform
from keras_vit.layers.norms import norm_layer


def activate(x: Any, form: str) -> Any:
    """Applies an activation to every element of `x`.

    Args:
        x: a tensor of any shape.
        form: `"gelu"`; `"gelu_tanh"`, its approximation in the official code; `"quick_gelu"`,
            x sigmoid(1.702 x), its approximation in CLIP; or `"silu"`, x sigmoid(x).
    """
    if form == "silu":
        return ops.silu(x)
    if form == "quick_gelu":
        return x * ops.sigmoid(1.702 * x)
    return kernels.gelu(x, form == "gelu_tanh")


@keras.saving.register_keras_serializable("keras_vit")
class MLP(ConfiguredLayer):
    """Two Dense layers with a GELU between them (section 3.1, `MlpBlock` of the reference).

        MLP(x) = W_1 gelu(W_0 x)
        MLP(x) = W_1 (act(W_gate x) * W_value x)     with a gate (Shazeer 2020, arXiv 2002.05202)

    Input and output `(batch, tokens, hidden_size)`.

    Args:
        mlp_dim: width of the hidden layer; of a gated MLP, width of the gate and of the value.
        dropout_rate: dropout of the hidden layer and of the output, in training.
        block: activation, gate, biases and norm: a `keras_vit.config.Block` or a dict of its
            fields.
    """

    def __init__(self, mlp_dim, dropout_rate=0.0, block=Block(), **kwargs):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.block = Block.read(block)
        self.gate = self.norm = None

    def build(self, input_shape):
        hidden_shape = (*input_shape[:-1], self.mlp_dim)
        if self.block.gated:
            self.gate = self._dense(self.mlp_dim, "gate", input_shape)
            self.value = self._dense(self.mlp_dim, "value", input_shape)
        else:
            self.dense_0 = self._dense(self.mlp_dim, "dense_0", input_shape)
        self.dense_1 = self._dense(input_shape[-1], "dense_1", hidden_shape)
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy, name="dropout")
        self.dropout.build(input_shape)
        if self.block.sub_norm in ("mlp", "both"):
            self.norm = norm_layer(self.block, self.dtype_policy, name="sub_norm")
            self.norm.build(hidden_shape)

    def _dense(self, units, name, input_shape):
        layer = Dense(
            units,
            use_bias=self.block.mlp_bias,
            kernel_initializer=XavierUniform(),
            bias_initializer=RandomNormal(stddev=1e-6),
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build(input_shape)
        return layer

    def call(self, inputs, training=None):
        x = self._drop(self._hidden(inputs), training)
        if self.norm is not None:
            x = self.norm(x)
        return self._drop(self.dense_1(x), training)

    def _hidden(self, inputs):
        if self.gate is None:
            return activate(self.dense_0(inputs), self.block.activation)
        return activate(self.gate(inputs), self.block.activation) * self.value(inputs)

    def _drop(self, x, training):
        drops = training and self.dropout_rate > 0
        return self.dropout(x, training=True) if drops else x
