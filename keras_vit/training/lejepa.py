"""LeJEPA: the loss of training without labels (Balestriero and LeCun 2025, arXiv 2511.08544).

The loss asks that all views of an image have the same projection, and that the projections of all
images have a normal distribution with unit covariance. So they cannot collapse to one point, and
training needs no teacher, stop-gradient or schedule of the loss. The reference is `LeJEPALoss` of
lightly.
"""

from typing import Any

import numpy as np
from keras import ops

from keras_vit.distribution.processes import count_replicas, mean_over_replicas
from keras_vit.layers.base import ConfiguredLayer

_KNOTS = np.linspace(0, 3, 17, dtype="float32")
_STEPS = np.array([1, *[2] * 15, 1], "float32") * (3 / 16)  # trapezoids over [-3, 3], by symmetry
_NORMAL = np.exp(-np.square(_KNOTS) / 2)
"""The characteristic function of the normal distribution, which is its own window here."""


def invariance(projections: Any, global_views: int) -> Any:
    """Returns the mean squared distance of all views from the centre of their image.

    Args:
        projections: float32 `(images, views, units)`, global views first.
        global_views: number of views whose mean is the centre.
    """
    centre = ops.mean(projections[:, :global_views], axis=1, keepdims=True)
    return ops.mean(ops.square(projections - centre))


def sigreg(projections: Any, directions: Any) -> Any:
    """Returns how far the projections of each view are from a normal distribution (SIGReg).

    It is the statistic of Epps and Pulley along random directions: the squared difference of the
    characteristic functions, times a window, integrated from -3 to 3, times the number of images.
    It counts the images of all processes and replicas that train together.

    Args:
        projections: float32 `(images, views, units)`.
        directions: unit vectors `(units, directions)`, the same in all processes.
    """
    knots, normal, steps = map(ops.convert_to_tensor, (_KNOTS, _NORMAL, _NORMAL * _STEPS))
    angles = ops.matmul(projections, directions)[..., None] * knots
    moments = ops.stack([ops.mean(ops.cos(angles), axis=0), ops.mean(ops.sin(angles), axis=0)])
    real, imaginary = ops.unstack(mean_over_replicas(moments))  # (views, directions, knots)
    gap = ops.square(real - normal) + ops.square(imaginary)
    images = ops.shape(projections)[0] * count_replicas()
    return ops.mean(ops.sum(gap * steps, axis=-1)) * ops.cast(images, "float32")


class BatchNorm(ConfiguredLayer):
    """Batch normalisation over the images of all processes and replicas, in prediction too.

    `keras.layers.BatchNormalization` synchronises only on TensorFlow. There are no moving
    statistics, because the projector, which this layer is a part of, is only used for the loss.
    """

    def build(self, input_shape: Any) -> None:
        """Creates scale and offset."""
        self.gamma = self.add_weight(name="gamma", shape=input_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=input_shape[-1:], initializer="zeros")

    def call(self, inputs: Any) -> Any:
        """Returns the normalised inputs, `(batch, units)`."""
        values = ops.cast(inputs, "float32")
        values = values - mean_over_replicas(ops.mean(values, axis=0))
        variance = mean_over_replicas(ops.mean(ops.square(values), axis=0))
        scale = ops.cast(self.gamma, "float32") * ops.rsqrt(variance + 1e-5)
        return ops.cast(values * scale + ops.cast(self.beta, "float32"), inputs.dtype)
