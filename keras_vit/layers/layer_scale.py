"""LayerScale: a learned weight per channel on what a branch adds to the tokens."""

import keras
from keras import ops

from keras_vit import kernels
from keras_vit.layers.base import ConfiguredLayer


@kernels.direct
@keras.saving.register_keras_serializable("keras_vit")
class LayerScale(ConfiguredLayer):
    """Multiplies every channel by a learned number (CaiT: Touvron et al. 2021, arXiv 2103.17239).

    Stands behind a branch of a block, before it joins the tokens: `z + gamma * MSA(LN(z))`.
    DeiT-III, DINOv2 and DINOv3 have one on both branches. Input and output
    `(..., hidden_size)`.

    Args:
        initial_value: of every channel; small, so that a deep encoder starts as the identity.
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

    def compute_output_shape(self, input_shape):
        return input_shape
