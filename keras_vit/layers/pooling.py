"""Pooling of the encoded tokens into the input of the head."""

import keras
from keras import ops

from keras_vit.config import Block
from keras_vit.config.rules import choice
from keras_vit.layers.attention import Attention
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.initializers import XavierUniform
from keras_vit.layers.mlp import MLP
from keras_vit.layers.norms import norm_layer


@keras.saving.register_keras_serializable("keras_vit")
class Pool(ConfiguredLayer):
    """Pools tokens `(batch, tokens, hidden_size)` into the input of the head.

    The output is `(batch, hidden_size)` unless stated below. The argument `mask` of a call, bool
    `(batch, tokens)`, is False for tokens, such as padding, that means ignore.

    Args:
        kind: `"token"` returns the class token (Eq. 4), or the mean of several class tokens;
            `"tokens"` returns all class tokens, concatenated. `"gap"` returns the mean of the
            tokens after the first `skip`. `"token_and_mean"` returns the class token concatenated
            with that mean, `(batch, 2 * hidden_size)` (DINOv2). `"two_tokens"` returns the first
            two tokens, `(batch, 2, hidden_size)`, and `"mean_of_two_tokens"` their mean (DeiT).
            `"unpooled"` returns all tokens.
        skip: number of tokens before the patches, which the mean of `"gap"` and `"token_and_mean"`
            does not include.
        num_class_tokens: number of class tokens, which are the first tokens.

    Raises:
        ConfigError: `kind` is unknown.
    """

    def __init__(self, kind, skip=0, num_class_tokens=1, **kwargs):
        super().__init__(**kwargs)
        _KINDS.check("kind", kind)
        self.kind = kind
        self.skip = skip
        self.num_class_tokens = num_class_tokens
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if self.kind == "unpooled":
            return inputs
        if self.kind not in ("gap", "token_and_mean"):
            return self._first_tokens(inputs)
        patches = inputs[:, self.skip :] if self.skip else inputs
        if mask is None:
            mean = ops.mean(patches, axis=1)
        else:
            counts = ops.cast(mask[:, self.skip :], patches.dtype)[..., None]
            mean = ops.sum(patches * counts, axis=1) / ops.maximum(ops.sum(counts, axis=1), 1)
        if self.kind == "gap":
            return mean
        return ops.concatenate([self._class_token(inputs), mean], axis=-1)

    def _first_tokens(self, inputs):
        if self.kind == "token":
            return self._class_token(inputs)
        if self.kind == "two_tokens":
            return inputs[:, :2]
        if self.kind == "mean_of_two_tokens":
            return ops.mean(inputs[:, :2], axis=1)
        width = self.num_class_tokens * inputs.shape[-1]
        return ops.reshape(inputs[:, : self.num_class_tokens], (-1, width))

    def _class_token(self, inputs):
        if self.num_class_tokens == 1:
            return inputs[:, 0]
        return ops.mean(inputs[:, : self.num_class_tokens], axis=1)

    def compute_mask(self, *arguments):
        """Returns None: an output has no tokens to mask."""

    def compute_output_shape(self, input_shape):
        batch, _, hidden_size = input_shape
        if self.kind == "unpooled":
            return input_shape
        if self.kind == "two_tokens":
            return batch, 2, hidden_size
        vectors = {"token_and_mean": 2, "tokens": self.num_class_tokens}.get(self.kind, 1)
        return batch, vectors * hidden_size


_KINDS = choice(
    "token",
    "tokens",
    "gap",
    "token_and_mean",
    "two_tokens",
    "mean_of_two_tokens",
    "unpooled",
)


@keras.saving.register_keras_serializable("keras_vit")
class MAPHead(ConfiguredLayer):
    """Multi-head attention pooling (Lee et al. 2019; `MAPHead` of big_vision's `models/vit.py`).

    A learned query, the probe, attends to all tokens; `x + MLP(LN(x))` follows. Input
    `(batch, tokens, hidden_size)`, output `(batch, hidden_size)`; `mask` `(batch, tokens)` and
    `read_weights` are the arguments of `Attention`.

    Args:
        num_heads: attention heads; divides `hidden_size`.
        mlp_dim: width of the MLP's hidden layer.
        block: activation of the MLP, and epsilon of the norm: a `keras_vit.config.Block` or a dict
            of its fields. The layer always has all biases and a LayerNorm.
        skip: number of first tokens that the probe does not attend to.
    """

    def __init__(self, num_heads, mlp_dim, block=Block(), skip=0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.block = Block.read(block)
        self.skip = skip
        self.supports_masking = True

    def build(self, input_shape):
        batch, _, hidden_size = input_shape
        self.probe = self.add_weight(
            name="probe", shape=(1, 1, hidden_size), initializer=XavierUniform(input_axes=2)
        )
        activation = "gelu" if self.block.activation == "silu" else self.block.activation
        block = Block(epsilon=self.block.epsilon, activation=activation)
        self.attention = Attention(self.num_heads, dtype=self.dtype_policy, name="attention")
        self.norm = norm_layer(block, self.dtype_policy, name="norm")
        self.mlp = MLP(self.mlp_dim, block=block, dtype=self.dtype_policy, name="mlp")
        pooled_shape = (batch, 1, hidden_size)
        self.attention.build(pooled_shape, input_shape)
        self.norm.build(pooled_shape)
        self.mlp.build(pooled_shape)

    def call(self, inputs, mask=None, read_weights=None):
        mask = None if mask is None else mask[:, self.skip :]
        further = {"mask": mask, "read_weights": read_weights}
        further = {name: value for name, value in further.items() if value is not None}
        x = self.attention(*self._probe_and_context(inputs), **further)
        return (x + self.mlp(self.norm(x)))[:, 0]

    def attention_weights(self, inputs):
        """Returns the weights of the probe, float32 `(batch, heads, 1, tokens - skip)`."""
        return self.attention.attention_weights(*self._probe_and_context(inputs))

    def compute_mask(self, *arguments):
        """Returns None: an output has no tokens to mask."""

    def _probe_and_context(self, inputs):
        shape = ops.shape(inputs)
        probe = ops.broadcast_to(ops.cast(self.probe, inputs.dtype), (shape[0], 1, shape[2]))
        return probe, inputs[:, self.skip :] if self.skip else inputs

    def compute_output_shape(self, input_shape):
        return input_shape[0], input_shape[2]
