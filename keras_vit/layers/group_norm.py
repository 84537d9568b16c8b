"""Group normalisation, Wu and He 2018 (arXiv 1803.08494)."""

import keras
from keras import ops

from keras_vit.kernels import reference


@keras.saving.register_keras_serializable("keras_vit")
class GroupNorm(keras.layers.GroupNormalization):
    """`keras.layers.GroupNormalization` whose second derivatives are right under TensorFlow.

    Arguments and weights are Keras's.
    """

    def call(self, inputs):
        axis, shape = self.axis % len(inputs.shape), ops.shape(inputs)
        groups = (self.groups, inputs.shape[axis] // self.groups)
        x = ops.reshape(inputs, (-1, *shape[1:axis], *groups, *shape[axis + 1 :]))
        axes = tuple(other for other in range(1, len(x.shape)) if other != axis)
        x = ops.reshape(reference.normalise(x, axes, self.epsilon), shape)
        return ops.cast(reference.scaled(x, self.gamma, self.beta, [axis]), self.compute_dtype)
