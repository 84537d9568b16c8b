"""Learned tokens: class token (Eq. 1), register tokens and mask token."""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.initializers import RandomNormal


@keras.saving.register_keras_serializable("keras_vit")
class ClassToken(ConfiguredLayer):
    """Prepends the class token to a sequence: `[x_class; x_1; ...; x_N]` (Eq. 1).

    Input `(batch, tokens, hidden_size)`, output `(batch, 1 + tokens, hidden_size)`.
    The token is initialised to zero, as in `vit_jax/models_vit.py`.
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


@keras.saving.register_keras_serializable("keras_vit")
class RegisterTokens(ConfiguredLayer):
    """Inserts register tokens between the first tokens of a sequence and its patches.

    `[x_class; r_1; ...; r_R; x_1; ...; x_N]`: register tokens store information that the encoder
    would otherwise store in background patches (Darcet et al. 2023, arXiv 2309.16588). Input
    `(batch, tokens, hidden_size)`, output `(batch, num_tokens + tokens, hidden_size)`.

    Args:
        num_tokens: number of register tokens.
        after: number of tokens before them: 1 with a class token, 0 without.
    """

    def __init__(self, num_tokens, after=0, **kwargs):
        super().__init__(**kwargs)
        self.num_tokens = num_tokens
        self.after = after

    def build(self, input_shape):
        self.tokens = self.add_weight(
            name="tokens",
            shape=(1, self.num_tokens, input_shape[-1]),
            initializer=RandomNormal(stddev=0.02),
        )

    def call(self, inputs):
        shape = (ops.shape(inputs)[0], self.num_tokens, inputs.shape[-1])
        tokens = ops.broadcast_to(ops.cast(self.tokens, inputs.dtype), shape)
        parts = [tokens, inputs]
        if self.after:
            parts = [inputs[:, : self.after], tokens, inputs[:, self.after :]]
        return ops.concatenate(parts, axis=1)

    def compute_output_shape(self, input_shape):
        batch, tokens, hidden_size = input_shape
        return batch, None if tokens is None else tokens + self.num_tokens, hidden_size


@keras.saving.register_keras_serializable("keras_vit")
class MaskToken(ConfiguredLayer):
    """Stores the mask token of masked pretraining (BEiT, iBOT, DINOv2); the output is the input.

    Input and output `(batch, patches, hidden_size)`. Files of DINOv2 and DINOv3 contain the token,
    and a model keeps it for writing them; it is not trainable.
    """

    def build(self, input_shape):
        self.token = self.add_weight(
            name="token", shape=(1, 1, input_shape[-1]), initializer="zeros", trainable=False
        )

    def call(self, inputs):
        return inputs
