"""Losses and metrics for semantic segmentation and depth estimation, with ignored pixels."""

from typing import Any

import keras
from keras import ops

from keras_vit.config import DenseHead, Prediction

_LEAST = 1e-6
"""Lower bound of depths before the logarithm, because `relu` returns zeros."""


def choose_loss(head: DenseHead, from_logits: bool) -> keras.losses.Loss:
    """Returns the loss `"auto"` of a dense head, a mean over the pixels that are not ignored."""
    if not head.is_segmentation:
        return ScaleInvariantLogLoss()
    return MaskCrossentropy(from_logits, head.ignore_label)


def choose_metrics(head: DenseHead, prediction: Prediction) -> list[keras.metrics.Metric]:
    """Returns the metrics `"auto"` of a dense head."""
    if not head.is_segmentation:
        return [DepthError("rmse"), DepthShare("within_1.25")]
    size, label = prediction.num_classes, head.ignore_label
    return [MaskIoU(size, "mean_iou", "float32", ignore_class=label, sparse_y_pred=False)]


@keras.saving.register_keras_serializable("keras_vit")
class MaskCrossentropy(keras.losses.SparseCategoricalCrossentropy):
    """Cross-entropy for semantic segmentation, with sample weights per image or per pixel."""

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return super().__call__(y_true, y_pred, _of_pixels(sample_weight, y_true))


@keras.saving.register_keras_serializable("keras_vit")
class MaskIoU(keras.metrics.MeanIoU):
    """Mean intersection over union (IoU) from logits, with sample weights per image or per pixel.

    Keras's own metric takes seconds per batch on torch, where it loops over pixels, and casts
    weights to ints unless `dtype` is a float type.
    """

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Counts the pixels of a batch."""
        true, size = ops.cast(y_true, "int32"), self.num_classes
        counts = (true >= 0) & (true < size)
        if self.ignore_class is not None:
            counts = counts & (true != self.ignore_class)
        weights = ops.cast(counts, "float32")
        if sample_weight is not None:
            weights = weights * _of_pixels(sample_weight, y_true)
        cells = ops.where(counts, true * size + ops.cast(ops.argmax(y_pred, -1), "int32"), 0)
        sums = ops.segment_sum(ops.ravel(weights), ops.ravel(cells), size * size)
        self.total_cm.assign(self.total_cm + ops.reshape(sums, (size, size)))


@keras.saving.register_keras_serializable("keras_vit")
class ScaleInvariantLogLoss(keras.losses.Loss):
    """The scale-invariant log loss for depth (Eigen et al. 2014, arXiv 1406.2283, Eq. 4).

    With d = log(predicted) - log(true) over the valid pixels of an image, its loss is
    mean(d^2) - `share` * mean(d)^2. The result is the mean over the images with valid pixels. A
    pixel of 0 or NaN is not valid. Sample weights of pixels apply to these means, and their mean is
    the weight of the image.

    Args:
        share: 0 for the squared error of logarithms, 1 to ignore the scale of an image.
        **options: arguments of `keras.losses.Loss`; the reduction is a mean.
    """

    def __init__(self, share: float = 0.5, **options: Any) -> None:
        super().__init__(**{"name": "scale_invariant_log_loss", **options})
        self.share = share

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        true, predicted, has_value, weights = _read(y_true, y_pred, sample_weight)
        difference = ops.log(ops.maximum(predicted, _LEAST)) - ops.log(true)
        pixels, total = (ops.sum(each, axis=(1, 2)) for each in (has_value, weights))
        mean, of_squares = (
            ops.sum(weights * difference**power, axis=(1, 2)) / ops.maximum(total, _LEAST)
            for power in (1, 2)
        )
        shares = total / ops.maximum(pixels, 1)  # the weights of the images
        losses = shares * (of_squares - self.share * mean**2)
        return ops.sum(losses) / ops.maximum(ops.sum(ops.cast(pixels > 0, "float32")), 1)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "share": self.share}


@keras.saving.register_keras_serializable("keras_vit")
class DepthError(keras.metrics.Mean):
    """Root mean squared error of depths over all valid pixels, in their unit."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Counts the pixels of a batch."""
        true, predicted, _, weights = _read(y_true, y_pred, sample_weight)
        super().update_state((predicted - true) ** 2, weights)

    def result(self) -> Any:
        """Returns the error so far."""
        return ops.sqrt(super().result())


@keras.saving.register_keras_serializable("keras_vit")
class DepthShare(keras.metrics.Mean):
    """Fraction of valid pixels whose predicted depth is within a factor of 1.25 of the true one."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Counts the pixels of a batch."""
        true, predicted, _, weights = _read(y_true, y_pred, sample_weight)
        is_within = (predicted < 1.25 * true) & (true < 1.25 * predicted)
        super().update_state(ops.cast(is_within, weights.dtype), weights)


def _read(y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any, Any, Any]:
    """Returns true and predicted depths, the mask of valid pixels, and the sample weights.

    All are float32 `(batch, height, width)`. An invalid pixel, whose depth is 0 or NaN, gets a true
    depth of 1 and a weight of 0.
    """
    predicted = ops.cast(y_pred, "float32")
    true = ops.reshape(ops.cast(y_true, "float32"), ops.shape(predicted))
    has_value = true > 0  # False for NaN
    true, has_value = ops.where(has_value, true, 1.0), ops.cast(has_value, "float32")
    weights = has_value
    if sample_weight is not None:
        weights = weights * _of_pixels(sample_weight, predicted)
    return true, predicted, has_value, weights


def _of_pixels(sample_weight: Any, like: Any) -> Any:
    """Returns sample weights of images, `(batch,)`, or of pixels, as weights of pixels; or None.

    The result is a new tensor: on torch, Keras's losses change their weights in place.
    """
    if sample_weight is None:
        return None
    own = ops.cast(sample_weight, "float32")
    own = ops.reshape(own, (-1, 1, 1)) if len(own.shape) == 1 else own
    return own * ops.ones(ops.shape(like))
