"""Register tokens: learned tokens without a patch, as scratch space for the encoder."""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.initializers import RandomNormal


@keras.saving.register_keras_serializable("keras_vit")
class RegisterTokens(ConfiguredLayer):
    """Puts learned tokens between the first tokens of a sequence and its patches.

    `[x_class; r_1; ...; r_R; x_1; ...; x_N]`: registers hold information that the encoder would
    otherwise store in background patches (Darcet et al. 2023, arXiv 2309.16588). Input
    `(batch, tokens, hidden_size)`, output `(batch, num_tokens + tokens, hidden_size)`.

    Args:
        num_tokens: number of registers.
        after: number of tokens before the registers: 1 with a class token, 0 without.
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
