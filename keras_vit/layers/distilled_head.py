"""The two heads of a distilled model: the first learns from labels, the second from a teacher."""

import keras

from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.dense import Dense


@keras.saving.register_keras_serializable("keras_vit")
class DistilledHead(ConfiguredLayer):
    """Reads the class token and the distillation token with a head each (DeiT).

    Input `(batch, 2, features)`, output the mean of both heads' logits, `(batch, num_classes)`.
    `both` returns the logits of each head, for training with a teacher (Touvron et al. 2021,
    arXiv 2012.12877, section 4):

        head = model.get_layer("head")
        student = keras.Model(model.input, head.both(head.input))

    Args:
        num_classes: width of each head.
        bias_init: initial bias of both heads; kernels start at zero.
    """

    def __init__(self, num_classes, bias_init=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.bias_init = bias_init

    def build(self, input_shape):
        self.heads = []
        for name in ("class", "distillation"):
            head = Dense(
                self.num_classes,
                kernel_initializer="zeros",
                bias_initializer=keras.initializers.Constant(self.bias_init),
                dtype=self.dtype_policy,
                name=name,
            )
            head.build((input_shape[0], input_shape[2]))
            self.heads.append(head)

    def both(self, inputs):
        """Returns the logits of the class token and the logits of the distillation token."""
        return tuple(head(inputs[:, i]) for i, head in enumerate(self.heads))

    def call(self, inputs):
        of_class, of_distillation = self.both(inputs)
        return (of_class + of_distillation) / 2

    def compute_output_shape(self, input_shape):
        return input_shape[0], self.num_classes
