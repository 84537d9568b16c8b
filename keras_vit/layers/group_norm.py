"""Group normalisation, Wu and He 2018 (arXiv 1803.08494)."""

import keras
from keras import ops

from keras_vit.kernels import reference


@keras.saving.register_keras_serializable("keras_vit")
class GroupNorm(keras.layers.GroupNormalization):
    """`keras.layers.GroupNormalization`, more exact under torch, right derivatives of any order.

    Arguments and weights are Keras's. The mean over the pixels comes before the mean over the
    channels of a group: torch adds all of them into one float32 number if it is asked for both at
    once and the channels stand last, which makes the variance of 112 x 112 pixels wrong by 4e-6 and
    takes six times as long.
    """

    def call(self, inputs):
        axis, shape = self.axis % len(inputs.shape), ops.shape(inputs)
        groups = (self.groups, inputs.shape[axis] // self.groups)
        x = ops.reshape(inputs, (-1, *shape[1:axis], *groups, *shape[axis + 1 :]))
        pixels = tuple(a for a in range(1, len(x.shape)) if a not in (axis, axis + 1))
        x = ops.reshape(reference.normalise(x, (pixels, (axis + 1,)), self.epsilon), shape)
        return ops.cast(reference.scaled(x, self.gamma, self.beta, [axis]), self.compute_dtype)
