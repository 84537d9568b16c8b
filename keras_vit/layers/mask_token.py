"""The learned token that stands for a patch that is hidden from the encoder."""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable("keras_vit")
class MaskToken(ConfiguredLayer):
    """Replaces hidden patches by one learned token (BEiT, iBOT, DINOv2).

    Input `(batch, patches, hidden_size)`, and `masked`, bool `(batch, patches)`, or None for
    nothing hidden. Without it the input passes as it is: checkpoints of DINOv2 and DINOv3 hold
    the token, and inference does not read it. The token starts at zero, and does not learn
    until `trainable` is set on the weight: a model that hides nothing has no gradient for it.
    """

    def build(self, inputs_shape, masked_shape=None):
        self.token = self.add_weight(
            name="token", shape=(1, 1, inputs_shape[-1]), initializer="zeros", trainable=False
        )

    def call(self, inputs, masked=None):
        if masked is None:
            return inputs
        token = ops.cast(self.token, inputs.dtype)
        return ops.where(ops.expand_dims(masked, -1), token, inputs)

    def compute_output_shape(self, inputs_shape, masked_shape=None):
        return inputs_shape
