"""One block of the Transformer encoder, Eqs. 2 and 3."""

import keras
from keras import ops

from keras_vit.config import Block, Rope
from keras_vit.layers.attention import Attention
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.mlp import MLP
from keras_vit.layers.norms import norm_layer
from keras_vit.layers.remat import rematerialised


@keras.saving.register_keras_serializable("keras_vit")
class LayerScale(ConfiguredLayer):
    """Multiplies every channel by a learned factor (CaiT: Touvron et al. 2021, arXiv 2103.17239).

    The layer scales a branch of a block before the residual sum: `z + gamma * MSA(LN(z))`.
    DeiT-III, DINOv2 and DINOv3 have a LayerScale on both branches. Input and output
    `(..., hidden_size)`.

    Args:
        initial_value: initial factor of every channel; with a small value, a deep encoder
            starts close to the identity.
    """

    def __init__(self, initial_value=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.initial_value = initial_value

    def build(self, input_shape):
        self.gamma = self.add_weight(
            name="gamma",
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
        )

    def call(self, inputs):
        return inputs * ops.cast(self.gamma, inputs.dtype)


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
        block: norms, activation, biases and layer scale: a `keras_vit.config.Block` or a dict of
            its fields. The default is the paper's block.
        dropout_rate: dropout after the attention and after both Dense layers of the MLP.
        attention_dropout_rate: dropout of the attention weights.
        stochastic_depth_rate: probability of skipping each residual branch, per example.
        rope: the rotary positions, see `Attention`; None for no rotation.
        remat: whether training stores only the input of the block and recomputes the block for
            the gradient (gradient checkpointing), which saves memory and costs a forward pass.
    """

    def __init__(
        self,
        num_heads,
        mlp_dim,
        block=Block(),
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        rope=None,
        remat=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.block = Block.read(block)
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.rope = None if rope is None else Rope.read(rope)
        self.remat = remat
        self.supports_masking = True

    def build(self, inputs_shape, rotary_shape=None, bias_shape=None):
        policy, block = self.dtype_policy, self.block
        self.attention_norm = norm_layer(block, policy, name="attention_norm")
        self.attention = Attention(
            self.num_heads,
            self.attention_dropout_rate,
            block,
            self.rope,
            dtype=policy,
            name="attention",
        )
        self.mlp_norm = norm_layer(block, policy, name="mlp_norm")
        self.mlp = MLP(self.mlp_dim, self.dropout_rate, block, dtype=policy, name="mlp")
        self.dropout = Dropout(self.dropout_rate, dtype=policy, name="dropout")
        self.stochastic_depth = StochasticDepth(
            self.stochastic_depth_rate, dtype=policy, name="stochastic_depth"
        )
        parts = [self.attention_norm, self.attention, self.dropout, self.stochastic_depth]
        parts += [self.mlp_norm, self.mlp]
        # The layers between a branch and its residual sum.
        self.after_attention, self.after_mlp = map(self._list_after, ("attention", "mlp"))
        for layer in [*parts, *self.after_attention, *self.after_mlp]:
            layer.build(inputs_shape)

    def _list_after(self, branch):
        layers, block, policy = [], self.block, self.dtype_policy
        if block.layer_scale is not None:
            layers.append(LayerScale(block.layer_scale, dtype=policy, name=f"{branch}_scale"))
        return layers

    def call(self, inputs, rotary=None, bias=None, mask=None, training=None, read_weights=None):
        if self.remat and training:

            def encode(x, bias=None):
                return self._encode(x, rotary, bias, mask, training=True)

            return rematerialised(self, encode, inputs, *(() if bias is None else (bias,)))
        return self._encode(inputs, rotary, bias, mask, training, read_weights)

    def _encode(self, inputs, rotary, bias, mask, training, read_weights=None):
        x = self.attention_norm(inputs)
        further = {"rotary": rotary, "bias": bias, "mask": mask, "read_weights": read_weights}
        further = {name: value for name, value in further.items() if value is not None}
        x = self.attention(x, **further, training=training)
        for layer in self.after_attention:
            x = layer(x)
        if training and self.dropout_rate > 0:
            x = self.dropout(x, training=True)
        x = self._branch(x, training) + inputs  # Eq. 2
        y = self.mlp(self.mlp_norm(x), training=training)
        for layer in self.after_mlp:
            y = layer(y)
        return self._branch(y, training) + x  # Eq. 3

    def _branch(self, x, training):
        drops = training and self.stochastic_depth_rate > 0
        return self.stochastic_depth(x, training=True) if drops else x

    def attention_weights(self, inputs, rotary=None, bias=None, mask=None):
        """Returns the softmax weights of this block, float32 `(batch, heads, tokens, tokens)`."""
        x = self.attention_norm(inputs)
        return self.attention.attention_weights(x, rotary=rotary, bias=bias, mask=mask)

    def compute_mask(self, *arguments):
        """Returns None: the model passes the mask to every block."""
