"""LayerScale: a learned weight per channel on the output of a residual branch."""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable("keras_vit")
class LayerScale(ConfiguredLayer):
    """Multiplies every channel by a learned number (CaiT: Touvron et al. 2021, arXiv 2103.17239).

    The layer scales a branch of a block before the residual sum: `z + gamma * MSA(LN(z))`.
    DeiT-III, DINOv2 and DINOv3 have a LayerScale on both branches. Input and output
    `(..., hidden_size)`.

    Args:
        initial_value: initial number of every channel; a small number makes a deep encoder
            start as the identity.
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
