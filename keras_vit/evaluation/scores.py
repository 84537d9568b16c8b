"""Computes accuracy, loss and calibration of a classifier, and errors of a regression model."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.config import Task
from keras_vit.config.rules import COUNT
from keras_vit.errors import ConfigError, expect_model
from keras_vit.evaluation.batches import count_images
from keras_vit.evaluation.metrics import average_precisions, calibration_error, r2_scores
from keras_vit.evaluation.targets import acceptable, match_columns, predict_targets
from keras_vit.models.losses import compute_probabilities
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.progress import progress_bar

METRICS = (
    *("loss", "top1", "top5", "real", "calibration_error"),
    *("mean_average_precision", "f1", "mean_absolute_error", "r2"),
)
CLASS_METRICS = (
    *("class_accuracy", "class_average_precision", "class_f1"),
    *("output_mean_absolute_error", "output_r2"),
)

_Scores = tuple[np.ndarray, dict[str, Any]]
"""Images per class; and metrics, with arrays for those of each class, NaN where undefined."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of a model, from `keras_vit.evaluate`. Every fraction is in [0, 1].

    The metrics of other tasks are NaN, and those per class and output `()`; the metric of a class
    is None where it is undefined, as for a class without images.

    Args:
        task: `"single_label"`, `"multi_label"` or `"regression"`.
        count: number of images that were scored.
        left_out: number of images without an acceptable class, which no metric counts.
        class_counts: images per class, or per output; an image with several right classes counts
            for each.
        loss: mean cross-entropy in nats, from the sum of the probabilities of the right classes;
            multi-label, the mean binary cross-entropy; regression, the mean squared error.
        top1, top5: fraction of images with a right class first, or among the first five.
        real: `top1` on `real_labels`.
        calibration_error: expected calibration error, the mean distance between confidence and
            accuracy over bins of equal width (Guo et al. 2017, Eq. 3).
        mean_average_precision, f1: multi-label, the means over the classes with images.
        mean_absolute_error: regression, in the units of the targets.
        r2: regression, the mean of `output_r2`; NaN if an output has one target in all images.
        class_accuracy: accuracy on the images of each class; multi-label, the fraction that reaches
            the decision threshold (recall).
        class_average_precision: multi-label, the average precision of each class
            (`average_precision_score` of scikit-learn).
        class_f1: multi-label, F1 at the decision thresholds.
        output_mean_absolute_error: regression, one value per output.
        output_r2: regression, the coefficient of determination of each output; 1 for perfect
            predictions, 0 for those of the targets' mean.
        real_count: number of images with at least one class in `real_labels`.
    """

    task: Task
    count: int
    left_out: int
    class_counts: tuple[int, ...]
    loss: float
    top1: float = math.nan
    top5: float = math.nan
    real: float = math.nan
    calibration_error: float = math.nan
    mean_average_precision: float = math.nan
    f1: float = math.nan
    mean_absolute_error: float = math.nan
    r2: float = math.nan
    class_accuracy: tuple[float | None, ...] = ()
    class_average_precision: tuple[float | None, ...] = ()
    class_f1: tuple[float | None, ...] = ()
    output_mean_absolute_error: tuple[float | None, ...] = ()
    output_r2: tuple[float | None, ...] = ()
    real_count: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that the task has, as plain JSON types."""
        fields = dataclasses.asdict(self)
        absent = [k for k, v in fields.items() if isinstance(v, float) and math.isnan(v)]
        return {k: v for k, v in fields.items() if k not in absent and v != ()}


def evaluate(
    model: VisionTransformer,
    data: Any,
    *,
    real_labels: Sequence[Sequence[int]] | None = None,
    classes: Sequence[int | str] | None = None,
    batch_size: int = 32,
    prepared: bool = False,
    calibration_bins: int = 15,
    progress: bool = False,
) -> Evaluation:
    """Measures a model on labelled images: accuracy, loss, calibration, or regression errors.

    The metrics are those of the model's task. Labels are class indices, one-hot rows, or lists of
    acceptable classes. With lists, a prediction is right if it is in the list, and an image with an
    empty list is skipped: the ReaL accuracy of "Are we done with ImageNet?" (arXiv 2006.07159,
    section 3).

    For a multi-label model no image is skipped, and the calibration error is over the probabilities
    of all images and classes.

    For a regression model the labels are targets `(batch, outputs)`. If model and data have the
    same names, in any order, targets and outputs are matched by name.

    Args:
        model: a `VisionTransformer` with one prediction per image.
        data: a pair of images, as for `model.preprocessor`, and labels; or a data set of prepared
            images and labels: data of `keras_vit.data`, any `PyDataset`, `tf.data.Dataset` or
            iterable of batches. If the data have an attribute `class_names`, they are matched to
            the model's labels.
        real_labels: a second set of labels, one list of acceptable classes per image in the
            order of the data, such as the published ReaL labels; scored as `real`.
        classes: the model's classes to choose from, by index or label, for data sets with a subset
            of ImageNet's classes (ImageNet-A and -R have 200); the logits of all other classes
            are ignored. Numeric labels are then indices into `classes`. None for all classes.
        batch_size: images per step; a data set has its own batches.
        prepared: whether the images are an array that `model.preprocessor` has prepared.
        calibration_bins: number of bins of the calibration error.
        progress: whether a progress bar is shown on stderr, if it is a terminal.

    Raises:
        ConfigError: the data are empty; images, labels or class names do not fit the model; logits
            are not finite; or `real_labels` or `classes` are given for regression.

    >>> import numpy as np, keras_vit
    >>> model = keras_vit.VisionTransformer.from_preset("vit_digits")
    >>> blank = np.zeros((3, 8, 8, 1), "uint8")
    >>> keras_vit.evaluate(model, (blank, [[0, 1], [], range(10)])).count
    2
    """
    expect_model(model).config.demand_prediction("evaluate")
    COUNT.check("calibration_bins", calibration_bins)
    task = model.task
    if task == "regression" and not (real_labels is None and classes is None):
        raise ConfigError("real_labels and classes need a classifier; this is a regression model.")
    competing, places = match_columns(model, data, classes)
    steps: list[tuple[np.ndarray, np.ndarray]] = []
    real: list[np.ndarray] = []
    seen = 0
    with progress_bar(progress, "Evaluating", count_images(data)) as advance:
        batches = predict_targets(model, data, competing, places, batch_size, prepared)
        for logits, targets in batches:
            steps.append(_judge(logits, targets) if task == "single_label" else (logits, targets))
            if real_labels is not None:
                lists = list(real_labels[seen : seen + len(logits)])
                if len(lists) < len(logits):
                    raise ConfigError(
                        f"real_labels has {len(real_labels)} lists; the data have more images."
                    )
                right = acceptable(lists, len(competing), seen)
                real.append(_rank_best(logits, right)[right.any(axis=1)] == 0)
            seen += len(logits)
            advance(len(logits))
    if real_labels is not None and seen < len(real_labels):
        raise ConfigError(f"real_labels has {len(real_labels)} lists for {seen} images.")
    first, second = map(np.concatenate, zip(*steps, strict=True))
    if not len(first):
        raise ConfigError(f"All {seen} images have labels that are not classes of the model.")
    if task == "single_label":
        scores = _score_single_label(first, second, len(competing), calibration_bins)
    elif task == "multi_label":
        thresholds = np.asarray(model.thresholds)[competing]
        scores = _score_multi_label(first, second, thresholds, calibration_bins)
    else:
        scores = _score_regression(first, second)
    counts, metrics = scores
    hits = np.concatenate(real) if real else np.zeros(0)
    if len(hits):
        metrics["real"] = hits.mean()
    return Evaluation(
        task,
        len(first),
        seen - len(first),
        tuple(counts.tolist()),
        **{name: _plain(np.asarray(value).tolist()) for name, value in metrics.items()},
        real_count=len(hits),
    )


def _plain(value: Any) -> Any:
    """Returns a value, or a list of values as a tuple with None for NaN."""
    if isinstance(value, list):
        return tuple(number if np.isfinite(number) else None for number in value)
    return value


def _judge(logits: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns all that the scores need from a batch, so that its logits are not kept.

    Args:
        logits, right: float64 and bool, `(batch, classes)`.

    Returns:
        Rank of the best right class, loss and confidence of each image with a right class,
        `(images, 3)`; and each right class with the rank of its image, `(labels, 2)`.
    """
    has_class = right.any(axis=1)
    logits, right = logits[has_class], right[has_class]
    rank, total = _rank_best(logits, right), _log_sum(logits, True)
    confidence = np.exp(logits.max(axis=1) - total)
    image, label = np.nonzero(right)
    images = np.stack([rank, total - _log_sum(logits, right), confidence], axis=1)
    return images, np.stack([label, rank[image]], axis=1)


def _score_single_label(
    images: np.ndarray, labels: np.ndarray, num_classes: int, bins: int
) -> _Scores:
    """Returns the scores of the images and labels that `_judge` returns."""
    rank, loss, confidence = images.T
    counts, hits = (
        np.bincount(part, minlength=num_classes)
        for part in (labels[:, 0], labels[labels[:, 1] == 0, 0])
    )
    metrics = {
        "top1": (rank == 0).mean(),
        "top5": (rank < 5).mean(),
        "loss": loss.mean(),
        "calibration_error": calibration_error(confidence, rank == 0, bins),
        "class_accuracy": hits / np.where(counts, counts, np.nan),
    }
    return counts, metrics


def _score_multi_label(
    logits: np.ndarray, right: np.ndarray, thresholds: np.ndarray, bins: int
) -> _Scores:
    """Returns the scores of float64 logits and bool labels, both `(images, classes)`."""
    probabilities = compute_probabilities(logits, task="multi_label")
    answers = probabilities >= thresholds
    counts, hits = right.sum(axis=0), (answers & right).sum(axis=0)
    present = np.where(counts, counts, np.nan)
    top = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    is_right = np.take_along_axis(right, top, axis=1)
    metrics = {
        "top1": is_right[:, 0].mean(),
        "top5": is_right.any(axis=1).mean(),
        "loss": (np.logaddexp(0, logits) - right * logits).mean(),
        "calibration_error": calibration_error(probabilities.ravel(), right.ravel(), bins),
        "class_accuracy": hits / present,
        "class_average_precision": average_precisions(probabilities, right),
        "class_f1": 2 * hits / (present + answers.sum(axis=0)),
    }
    if counts.any():
        metrics["mean_average_precision"] = np.nanmean(metrics["class_average_precision"])
        metrics["f1"] = np.nanmean(metrics["class_f1"])
    return counts, metrics


def _score_regression(predicted: np.ndarray, wanted: np.ndarray) -> _Scores:
    """Returns the scores of predictions and targets, both float64 `(images, outputs)`."""
    errors, r2 = predicted - wanted, r2_scores(predicted, wanted)
    absolute = np.abs(errors).mean(axis=0)
    metrics = {
        "loss": (errors**2).mean(),
        "mean_absolute_error": absolute.mean(),
        "r2": r2.mean(),
        "output_mean_absolute_error": absolute,
        "output_r2": r2,
    }
    return np.full(len(r2), len(errors)), metrics


def _log_sum(logits: np.ndarray, right: Any) -> np.ndarray:
    """Returns the logarithm of the sum of exp(logit) over the right classes of each image."""
    chosen = np.where(right, logits, -np.inf)
    largest = chosen.max(axis=1)
    return largest + np.log(np.exp(chosen - largest[:, None]).sum(axis=1))


def _rank_best(logits: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the rank of the best right class, from 0; equal logits rank in order of class."""
    best = np.where(right, logits, -np.inf).argmax(axis=1)
    value = np.take_along_axis(logits, best[:, None], axis=1)
    equal_before = (logits == value) & (np.arange(logits.shape[1]) < best[:, None])
    return (logits > value).sum(axis=1) + equal_before.sum(axis=1)
