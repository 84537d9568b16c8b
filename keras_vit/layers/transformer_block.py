"""One block of the Transformer encoder, Eqs. 2 and 3."""

import keras
from keras import ops

from keras_vit.layers.attention import Attention
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mlp import MLP
from keras_vit.layers.norms import norm_layer
from keras_vit.layers.remat import rematerialised


@keras.saving.register_keras_serializable("keras_vit")
class TransformerBlock(ConfiguredLayer):
    """Pre-norm Transformer encoder block (Figure 1, right; `Encoder1DBlock` of the reference).

        z' = MSA(LN(z)) + z         (Eq. 2)
        z  = MLP(LN(z')) + z'       (Eq. 3)

    Input and output `(batch, tokens, hidden_size)`. The norms compute in float32 under mixed
    precision. A block with `rope` is called with the output of `RotaryPositions` as `rotary`;
    `bias`, `mask` and `read_weights` are arguments of `Attention`.

    Args:
        num_heads: attention heads; divides `hidden_size`.
        mlp_dim: width of the MLP's hidden layer.
        dropout_rate: dropout after the attention and after both Dense layers of the MLP.
        attention_dropout_rate: dropout of the attention weights.
        stochastic_depth_rate: chance to skip each residual branch, per example.
        gelu: form of GELU: `"tanh"`, `"exact"` or `"quick"`.
        layer_norm_epsilon: added to the variance in every norm.
        qkv_bias: whether query, key and value have biases; a triple of bools if they differ.
        projection_bias: whether the projection of the heads has a bias.
        mlp_bias: whether the products of the MLP have biases.
        gate_activation: activation of a gated MLP's gate, see `MLP`; None for no gate.
        norm: `"layer"` or `"rms"`.
        qk_norm: `"head"` or `"width"`: queries and keys are normed, see `qk_norm_over` of
            `Attention`; None for no such norm.
        sub_norm_attention: whether a norm precedes the projection of the heads.
        sub_norm_mlp: whether a norm precedes the last product of the MLP.
        layer_scale: initial value of a `LayerScale` behind each branch; None for no LayerScale.
        rope: form of the rotary positions, see `Attention`; None for no rotation.
        rope_theta: base of the initial frequencies that `"mixed"` learns.
        attention_bias: a layer, as `keras.layers.serialize` describes it, that is called with the
            block's input and returns a bias of the attention's scores; None for no bias.
        remat: whether training keeps only the input, and computes the block again for the
            gradient: this saves memory and costs a forward pass.
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
        projection_bias=True,
        mlp_bias=True,
        gate_activation=None,
        norm="layer",
        qk_norm=None,
        sub_norm_attention=False,
        sub_norm_mlp=False,
        layer_scale=None,
        rope=None,
        rope_theta=10.0,
        attention_bias=None,
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
        self.projection_bias = projection_bias
        self.mlp_bias = mlp_bias
        self.gate_activation = gate_activation
        self.norm = norm
        self.qk_norm = qk_norm
        self.sub_norm_attention = sub_norm_attention
        self.sub_norm_mlp = sub_norm_mlp
        self.layer_scale = layer_scale
        self.rope = rope
        self.rope_theta = rope_theta
        self.attention_bias = attention_bias
        self.remat = remat
        self.supports_masking = True

    def build(self, inputs_shape, rotary_shape=None, bias_shape=None):
        policy, epsilon = self.dtype_policy, self.layer_norm_epsilon
        self.attention_norm = norm_layer(self.norm, epsilon, policy, name="attention_norm")
        self.attention = Attention(
            self.num_heads,
            self.attention_dropout_rate,
            self.qkv_bias,
            self.projection_bias,
            sub_norm=self.norm if self.sub_norm_attention else None,
            qk_norm=self.norm if self.qk_norm else None,
            qk_norm_over=self.qk_norm or "head",
            norm_epsilon=epsilon,
            rope=self.rope,
            rope_theta=self.rope_theta,
            dtype=policy,
            name="attention",
        )
        self.mlp_norm = norm_layer(self.norm, epsilon, policy, name="mlp_norm")
        self.mlp = MLP(
            self.mlp_dim,
            self.dropout_rate,
            self.gelu,
            gate_activation=self.gate_activation,
            sub_norm=self.norm if self.sub_norm_mlp else None,
            norm_epsilon=epsilon,
            use_bias=self.mlp_bias,
            dtype=policy,
            name="mlp",
        )
        self.dropout = Dropout(self.dropout_rate, dtype=policy, name="dropout")
        self.stochastic_depth = StochasticDepth(
            self.stochastic_depth_rate, dtype=policy, name="stochastic_depth"
        )
        parts = [self.attention_norm, self.attention, self.dropout, self.stochastic_depth]
        parts += [self.mlp_norm, self.mlp]
        if self.layer_scale is not None:
            self.attention_scale = LayerScale(
                self.layer_scale, dtype=policy, name="attention_scale"
            )
            self.mlp_scale = LayerScale(self.layer_scale, dtype=policy, name="mlp_scale")
            parts += [self.attention_scale, self.mlp_scale]
        if self.attention_bias is not None:
            self.bias_layer = keras.layers.deserialize(dict(self.attention_bias))
            parts.append(self.bias_layer)
        for layer in parts:
            layer.build(inputs_shape)

    def call(self, inputs, rotary=None, bias=None, mask=None, training=None, read_weights=None):
        if self.remat and training:

            def encode(x, bias=None):
                return self._encode(x, rotary, bias, mask, training=True)

            return rematerialised(self, encode, inputs, *(() if bias is None else (bias,)))
        return self._encode(inputs, rotary, bias, mask, training, read_weights)

    def _encode(self, inputs, rotary, bias, mask, training, read_weights=None):
        x = self.attention_norm(inputs)
        bias = self.with_own_bias(bias, inputs)
        further = {"rotary": rotary, "bias": bias, "mask": mask, "read_weights": read_weights}
        further = {name: value for name, value in further.items() if value is not None}
        x = self.attention(x, **further, training=training)
        if self.layer_scale is not None:
            x = self.attention_scale(x)
        if training and self.dropout_rate > 0:
            x = self.dropout(x, training=True)
        x = self._branch(x, training) + inputs  # Eq. 2
        y = self.mlp(self.mlp_norm(x), training=training)
        if self.layer_scale is not None:
            y = self.mlp_scale(y)
        return self._branch(y, training) + x  # Eq. 3

    def _branch(self, x, training):
        drops = training and self.stochastic_depth_rate > 0
        return self.stochastic_depth(x, training=True) if drops else x

    def with_own_bias(self, bias, inputs):
        """Returns the sum of a call's bias and the block's own, or None if there is neither."""
        if self.attention_bias is None:
            return bias
        own = self.bias_layer(inputs)
        return own if bias is None else own + ops.cast(bias, own.dtype)

    def attention_weights(self, inputs, rotary=None, bias=None, mask=None):
        """Returns the softmax weights of this block, float32 `(batch, heads, tokens, tokens)`."""
        x, bias = self.attention_norm(inputs), self.with_own_bias(bias, inputs)
        return self.attention.attention_weights(x, rotary=rotary, bias=bias, mask=mask)

    def compute_mask(self, *arguments):
        """Returns None: every block is given the mask anew."""
