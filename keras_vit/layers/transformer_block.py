"""One block of the Transformer encoder, Eqs. 2 and 3."""

import keras

from keras_vit import kernels
from keras_vit.layers.attention import Attention
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.mlp import MLP
from keras_vit.layers.precision import float32_under_mixed
from keras_vit.layers.remat import rematerialised
from keras_vit.layers.stochastic_depth import StochasticDepth


@keras.saving.register_keras_serializable("keras_vit")
class TransformerBlock(ConfiguredLayer):
    """Pre-norm Transformer encoder block (Figure 1, right; `Encoder1DBlock` of the reference).

        z' = MSA(LN(z)) + z         (Eq. 2)
        z  = MLP(LN(z')) + z'       (Eq. 3)

    Input and output `(batch, tokens, hidden_size)`. The LayerNorms compute in
    float32 under mixed precision.

    Args:
        num_heads: attention heads; divides `hidden_size`.
        mlp_dim: width of the MLP's hidden layer.
        dropout_rate: after the attention and after both Dense layers of the MLP.
        attention_dropout_rate: on the attention weights.
        stochastic_depth_rate: chance to skip each residual branch, per example.
        gelu: `"tanh"` or `"exact"`.
        layer_norm_epsilon: added to the variance in both LayerNorms.
        qkv_bias: whether query, key and value have biases.
        remat: whether training keeps the input alone, and computes the block again for the
            gradient: less memory, a forward pass more.
    """

    def __init__(
        self,
        num_heads,
        mlp_dim,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        gelu="tanh",
        layer_norm_epsilon=1e-6,
        qkv_bias=True,
        remat=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.gelu = gelu
        self.layer_norm_epsilon = layer_norm_epsilon
        self.qkv_bias = qkv_bias
        self.remat = remat

    def build(self, input_shape):
        policy = self.dtype_policy
        norm = {"epsilon": self.layer_norm_epsilon, "dtype": float32_under_mixed(policy)}
        self.attention_norm = LayerNorm(**norm, name="attention_norm")
        self.attention = Attention(
            self.num_heads,
            self.attention_dropout_rate,
            self.qkv_bias,
            dtype=policy,
            name="attention",
        )
        self.mlp_norm = LayerNorm(**norm, name="mlp_norm")
        self.mlp = MLP(self.mlp_dim, self.dropout_rate, self.gelu, dtype=policy, name="mlp")
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=policy)
        self.stochastic_depth = StochasticDepth(self.stochastic_depth_rate, dtype=policy)
        parts = (self.attention_norm, self.attention, self.dropout, self.stochastic_depth)
        for layer in (*parts, self.mlp_norm, self.mlp):
            layer.build(input_shape)

    def call(self, inputs, training=None):
        if self.remat and training:
            return rematerialised(self, lambda x: self._encode(x, training=True), inputs)
        return self._encode(inputs, training)

    def _encode(self, inputs, training):
        x = kernels.call_part(self, self.attention_norm, inputs)
        x = kernels.call_part(self, self.attention, x, training=training)
        if training and self.dropout_rate > 0:
            x = self.dropout(x, training=True)
        x = self._branch(x, training) + inputs  # Eq. 2
        y = kernels.call_part(self, self.mlp_norm, x)
        y = kernels.call_part(self, self.mlp, y, training=training)
        return self._branch(y, training) + x  # Eq. 3

    def _branch(self, x, training):
        drops = training and self.stochastic_depth_rate > 0
        return self.stochastic_depth(x, training=True) if drops else x

    def attention_weights(self, inputs):
        """Returns the softmax weights of this block, float32 `(batch, heads, tokens, tokens)`."""
        return self.attention.attention_weights(self.attention_norm(inputs))

    def compute_output_shape(self, input_shape):
        return input_shape
