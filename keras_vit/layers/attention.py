"""Multi-head scaled dot-product attention, Eqs. 5 to 8 (appendix A)."""

import keras
from keras import ops

from keras_vit import kernels
from keras_vit.config import Block, Rope
from keras_vit.errors import ConfigError
from keras_vit.kernels import reference
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.dense import EinsumDense
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.initializers import MixedFrequencies, XavierUniform
from keras_vit.layers.norms import norm_layer
from keras_vit.layers.rotary_positions import cos_and_sin


@keras.saving.register_keras_serializable("keras_vit")
class Attention(ConfiguredLayer):
    """Multi-head attention: self-attention, or cross-attention to a `context` (appendix A).

    Input `(batch, tokens, hidden_size)`, context `(batch, others, hidden_size)`,
    output `(batch, tokens, hidden_size)`. The softmax is float32 under every
    dtype policy. Without attention dropout, the backend's fastest attention is used
    (`keras_vit.kernels`), which does not store the `(tokens, others)` matrix of attention
    weights. The method `attention_weights` returns that matrix. A call with the argument
    `read_weights` computes it and passes it to this function, which returns the weights to use.

    Further arguments of a call: `bias`, float32 `(batch or 1, heads or 1, tokens or 1, others)`,
    is added to the scores before the softmax; `mask`, bool `(batch, others)`, is True for the
    context tokens to attend to, and all further tokens, such as padding, get the weight 0.

    Kernels have the axes of flax's MultiHeadDotProductAttention: query, key and
    value `(hidden_size, heads, head_dim)`, out `(heads, head_dim, hidden_size)`.

    Args:
        num_heads: number of heads, k in the paper; must divide `hidden_size`.
        dropout_rate: dropout of the attention weights, in training.
        block: biases and norms: a `keras_vit.config.Block` or a dict of its fields.
        rope: rotary position embeddings: a `keras_vit.config.Rope` or a dict of its fields. A call
            then needs the argument `rotary`, the output of `RotaryPositions`. None for no rotation.
            With learned frequencies, the layer has a weight `(2, heads, head_dim / 2)`.

    Raises:
        ConfigError: `num_heads` does not divide `hidden_size`, or only one of `rope` and `rotary`
            is given.
    """

    def __init__(self, num_heads, dropout_rate=0.0, block=Block(), rope=None, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.block = Block.read(block)
        self.rope = None if rope is None else Rope.read(rope)
        self.query_norm = self.key_norm = self.norm = None
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None, rotary_shape=None, bias_shape=None):
        hidden_size = inputs_shape[-1]
        if hidden_size % self.num_heads:
            raise ConfigError(
                f"hidden_size={hidden_size} is not divisible by num_heads={self.num_heads}."
            )
        head_dim = hidden_size // self.num_heads
        self.query, self.key, self.value = (
            EinsumDense(
                equation="btm,mhd->bthd",
                output_shape=(None, self.num_heads, head_dim),
                bias_axes="hd" if name in self.block.biased_projections else None,
                kernel_initializer=XavierUniform(),
                dtype=self.dtype_policy,
                name=name,
            )
            for name in ("query", "key", "value")
        )
        self.out = EinsumDense(
            equation="bthd,hdm->btm",
            output_shape=(None, hidden_size),
            bias_axes="m" if self.block.projection_bias else None,
            kernel_initializer=XavierUniform(input_axes=2),
            dtype=self.dtype_policy,
            name="out",
        )
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy, name="dropout")
        self.query.build(inputs_shape)
        self.dropout.build((inputs_shape[0], self.num_heads, inputs_shape[1], None))
        for layer in (self.key, self.value):
            layer.build(context_shape or inputs_shape)
        self.out.build((*inputs_shape[:-1], self.num_heads, head_dim))
        if self.block.qk_norm:
            self.query_norm, self.key_norm = (
                norm_layer(self.block, self.dtype_policy, name=name)
                for name in ("query_norm", "key_norm")
            )
            size = head_dim if self.block.qk_norm == "head" else hidden_size
            for layer in (self.query_norm, self.key_norm):
                layer.build((None, None, size))
        if self.block.sub_norm in ("attention", "both"):
            self.norm = norm_layer(self.block, self.dtype_policy, name="sub_norm")
            self.norm.build(inputs_shape)
        if self.rope is not None and self.rope.is_learned:
            self.rotary_frequencies = self.add_weight(
                name="rotary_frequencies",
                shape=(2, self.num_heads, head_dim // 2),
                initializer=MixedFrequencies(self.rope.theta),
                autocast=False,
            )

    def call(
        self,
        inputs,
        context=None,
        rotary=None,
        bias=None,
        mask=None,
        training=None,
        read_weights=None,
    ):
        context = inputs if context is None else context
        query, key, value = self.query(inputs), self.key(context), self.value(context)
        query, key = self.norm_and_rotate(query, key, rotary)
        bias = masked_bias(bias, mask)
        drops = training and self.dropout_rate > 0
        if drops or read_weights is not None:
            weights = reference.attention_weights(query, key, bias)
            if read_weights is not None:
                weights = read_weights(weights)
            if drops:
                weights = self.dropout(weights, training=training)
            x = ops.einsum("bhqk,bkhd->bqhd", ops.cast(weights, value.dtype), value)
        else:
            x = kernels.attention(query, key, value, bias)
        if self.norm is not None:
            x = norm_over_width(self.norm, x)
        return self.out(x)

    def attention_weights(self, inputs, context=None, rotary=None, bias=None, mask=None):
        """Returns softmax(q k^T / sqrt(d)) (Eq. 6), float32 `(batch, heads, tokens, others)`."""
        context = inputs if context is None else context
        query, key = self.norm_and_rotate(self.query(inputs), self.key(context), rotary)
        return reference.attention_weights(query, key, masked_bias(bias, mask))

    def norm_and_rotate(self, query, key, rotary, norms=None):
        """Returns query and key, normalized and rotated by their positions.

        Args:
            query, key: tensors `(batch, tokens, heads, head_dim)`.
            rotary: output of `RotaryPositions`, or None.
            norms: functions that compute `query_norm` and `key_norm`; None for the layers.
        """
        if self.query_norm is not None:
            norms = norms or (self.query_norm, self.key_norm)
            norm_heads = norm_each if self.block.qk_norm == "head" else norm_over_width
            query, key = (norm_heads(*pair) for pair in zip(norms, (query, key), strict=True))
        if (self.rope is None) != (rotary is None):
            raise ConfigError(
                f"Attention with rope={self.rope!r} was called "
                f"{'without' if rotary is None else 'with'} rotary positions."
            )
        if rotary is None:
            return query, key
        neighbours = self.rope.pairs_neighbours
        if self.rope.is_learned:  # `rotary` holds coordinates (tokens, 2)
            frequencies = ops.cast(self.rotary_frequencies, "float32")
            coordinates = ops.cast(rotary, "float32")[:, :, None, None]
            rotary = cos_and_sin(
                coordinates[:, 0] * frequencies[0] + coordinates[:, 1] * frequencies[1], neighbours
            )
        else:
            rotary = ops.expand_dims(rotary, 2)
        return kernels.rotate(query, rotary, neighbours), kernels.rotate(key, rotary, neighbours)

    def compute_mask(self, *arguments):
        """Returns None: the output does not have the mask of the context."""


def norm_each(norm, x):
    """Normalizes each head of `(batch, tokens, heads, head_dim)`; keeps the dtype of x."""
    return ops.cast(norm(x), x.dtype)


def norm_over_width(norm, x):
    """Normalizes all heads of `(batch, tokens, heads, head_dim)` together; keeps the dtype of x."""
    shape = ops.shape(x)
    joined = ops.reshape(x, (*shape[:2], x.shape[2] * x.shape[3]))
    return ops.cast(ops.reshape(norm(joined), shape), x.dtype)


HIDDEN = -1e30
"""Bias of a masked token. It is finite because a softmax over -inf, and its gradient, are NaN."""


def masked_bias(bias, mask):
    """Adds a mask to the bias of attention scores; returns None if there is neither.

    Args:
        bias: a tensor `(batch or 1, heads or 1, tokens or 1, others)`, or None.
        mask: bool `(batch, others)`, True for the tokens to attend to; None for all.
    """
    if mask is None:
        return bias
    hidden = (1 - ops.cast(mask, "float32"))[:, None, None] * HIDDEN
    return hidden if bias is None else ops.cast(bias, "float32") + hidden
