"""Multi-head scaled dot-product attention, Eqs. 5 to 8 (appendix A)."""

import math

import keras
from keras import ops

from keras_vit import kernels
from keras_vit.errors import ConfigError
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.dense import EinsumDense
from keras_vit.layers.initializers import XavierUniform


@kernels.direct
@keras.saving.register_keras_serializable("keras_vit")
class Attention(ConfiguredLayer):
    """Multi-head attention of `queries` over `context`, or over themselves (appendix A).

    Input `(batch, tokens, hidden_size)`, context `(batch, others, hidden_size)`,
    output `(batch, tokens, hidden_size)`. The softmax is float32 under every
    dtype policy. Without attention dropout the backend's fastest attention runs
    (`keras_vit.kernels`); `attention_weights` computes the `(tokens, others)`
    matrix when it is asked for.

    Kernels have the axes of flax's MultiHeadDotProductAttention: query, key and
    value `(hidden_size, heads, head_dim)`, out `(heads, head_dim, hidden_size)`.

    Args:
        num_heads: k of the paper; divides `hidden_size`.
        dropout_rate: on the attention weights, in training.
        qkv_bias: whether query, key and value have biases.
    """

    def __init__(self, num_heads, dropout_rate=0.0, qkv_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.qkv_bias = qkv_bias

    def build(self, inputs_shape, context_shape=None):
        hidden_size = inputs_shape[-1]
        if hidden_size % self.num_heads:
            raise ConfigError(
                f"hidden_size={hidden_size} is not divisible by num_heads={self.num_heads}."
            )
        head_dim = hidden_size // self.num_heads
        projection = {
            "equation": "btm,mhd->bthd",
            "output_shape": (None, self.num_heads, head_dim),
            "bias_axes": "hd" if self.qkv_bias else None,
            "kernel_initializer": XavierUniform(),
            "dtype": self.dtype_policy,
        }
        self.query = EinsumDense(**projection, name="query")
        self.key = EinsumDense(**projection, name="key")
        self.value = EinsumDense(**projection, name="value")
        self.out = EinsumDense(
            equation="bthd,hdm->btm",
            output_shape=(None, hidden_size),
            bias_axes="m",
            kernel_initializer=XavierUniform(input_axes=2),
            dtype=self.dtype_policy,
            name="out",
        )
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.query.build(inputs_shape)
        self.dropout.build((inputs_shape[0], self.num_heads, inputs_shape[1], None))
        for layer in (self.key, self.value):
            layer.build(context_shape or inputs_shape)
        self.out.build((*inputs_shape[:-1], self.num_heads, head_dim))

    def call(self, inputs, context=None, training=None):
        context = inputs if context is None else context
        query = kernels.call_part(self, self.query, inputs)
        key = kernels.call_part(self, self.key, context)
        value = kernels.call_part(self, self.value, context)
        if training and self.dropout_rate > 0:
            weights = self.dropout(self._softmax(query, key), training=training)
            x = ops.einsum("bhqk,bkhd->bqhd", ops.cast(weights, value.dtype), value)
        else:
            x = kernels.attention(query, key, value)
        return kernels.call_part(self, self.out, x)

    def attention_weights(self, inputs, context=None):
        """Returns softmax(q k^T / sqrt(d)) (Eq. 6), float32 `(batch, heads, tokens, others)`."""
        context = inputs if context is None else context
        return self._softmax(self.query(inputs), self.key(context))

    def _softmax(self, query, key):
        query = query / math.sqrt(query.shape[-1])
        logits = ops.einsum("bqhd,bkhd->bhqk", query, key)
        return ops.softmax(ops.cast(logits, "float32"), axis=-1)

    def compute_output_shape(self, inputs_shape, context_shape=None):
        return inputs_shape
