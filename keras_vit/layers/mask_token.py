"""The learned token that replaces a patch that is hidden from the encoder."""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable("keras_vit")
class MaskToken(ConfiguredLayer):
    """Replaces hidden patches by one learned token (BEiT, iBOT, DINOv2).

    Input `(batch, patches, hidden_size)`, and `masked`, bool `(batch, patches)`, True for hidden
    patches. With `masked=None` the layer returns its input: checkpoints of DINOv2 and DINOv3 hold
    the token, and inference does not read it. The token starts at zero, and is not trainable
    until `trainable` is set on the weight: a model without hidden patches has no gradient for it.
    """

    def build(self, inputs_shape, masked_shape=None):
        self.token = self.add_weight(
            name="token", shape=(1, 1, inputs_shape[-1]), initializer="zeros", trainable=False
        )

    def call(self, inputs, masked=None):
        if masked is None:
            return inputs
        return ops.where(ops.expand_dims(masked, -1), ops.cast(self.token, inputs.dtype), inputs)
