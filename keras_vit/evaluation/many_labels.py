"""Scores and thresholds of models that give an image many labels (multi-label)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError, expect_model
from keras_vit.evaluation.targets import match_columns, predict_classes
from keras_vit.models.losses import compute_probabilities
from keras_vit.models.vision_transformer import VisionTransformer


def choose_thresholds(
    model: VisionTransformer, data: Any, *, batch_size: int = 32, prepared: bool = False
) -> tuple[float, ...]:
    """Returns the threshold of each class with the highest F1 on held-out images.

    It lies midway between the probabilities of two images. The model takes it as
    `model.thresholds = choose_thresholds(model, validation)`; a preset keeps it.

    Args:
        model: a model with `thresholds`.
        data: images and labels as for `evaluate`, which the model was not trained on.
        batch_size: images per step; a data set has its own batches.
        prepared: whether the images are an array that `model.preprocessor` has prepared.

    Returns:
        One number per class of the model; a class without images keeps its threshold.

    Raises:
        ConfigError: the model has no thresholds, or the data do not fit it or have no labels.

    >>> import numpy as np, keras_vit
    >>> from keras_vit.evaluation import choose_thresholds
    >>> model = keras_vit.vit_ti16(image_size=32, num_classes=2, thresholds=0.4)
    >>> images, labels = np.zeros((4, 32, 32, 3), "float32"), np.array([[1, 0], [0, 0]] * 2)
    >>> choose_thresholds(model, (images, labels))  # a head of zeros: every probability is 0.5
    (0.25, 0.4)
    """
    if (thresholds := expect_model(model).thresholds) is None:
        raise ConfigError(
            "The model has no thresholds, so its probabilities are those of one label per image. "
            "Train it by a recipe with multi_label=True, or set model.thresholds = 0.5."
        )
    columns = match_columns(model, data, None)
    batches = predict_classes(model, data, *columns, batch_size, prepared)
    logits, rights = map(np.concatenate, zip(*batches, strict=True))
    return best_thresholds(
        compute_probabilities(logits.astype("float64"), by_class=True), rights, thresholds
    )


def best_thresholds(
    shares: np.ndarray, rights: np.ndarray, defaults: Sequence[float]
) -> tuple[float, ...]:
    """Returns the threshold of each class with the highest F1; see `choose_thresholds`.

    Args:
        shares: probability of each class, `(images, classes)`.
        rights: bool `(images, classes)`.
        defaults: thresholds of classes without images.
    """
    thresholds = list(defaults)
    for k, right in enumerate(rights.T):
        if right.any():
            values, taken, hits = _cuts(shares[:, k], right)
            best = int(np.argmax(2 * hits / (taken + right.sum())))
            thresholds[k] = float((values[best] + [*values[1:], 0.0][best]) / 2)
    return tuple(thresholds)


class ManyLabels:
    """Collects logits and labels of batches, and scores every class.

    Args:
        thresholds: least probability of each class, `(classes,)`.
        bins: bins of the calibration error.
    """

    def __init__(self, thresholds: np.ndarray, bins: int) -> None:
        self._thresholds = thresholds
        self._bins = bins
        self.count = 0
        self._batches: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, logits: np.ndarray, right: np.ndarray) -> None:
        """Adds a batch: logits and bool `right`, both `(batch, classes)`."""
        self.count += len(logits)
        self._batches.append((logits.astype("float64"), right))

    def result(self) -> dict[str, Any]:
        """Returns the fields of an `Evaluation`."""
        logits, right = map(np.concatenate, zip(*self._batches, strict=True))
        shares = compute_probabilities(logits, by_class=True)
        taken = shares >= self._thresholds
        counts, hits = right.sum(axis=0), (taken & right).sum(axis=0)
        judged = np.flatnonzero(counts)
        precision, f1 = np.zeros(len(counts)), 2 * hits / np.maximum(counts + taken.sum(axis=0), 1)
        for k in judged:
            precision[k] = average_precision(shares[:, k], right[:, k])
        top = np.argsort(-logits, axis=1, kind="stable")[:, :5]
        is_right = np.take_along_axis(right, top, axis=1)
        gaps = bin_gaps(shares.ravel(), right.ravel(), self._bins)
        return {
            "count": self.count,
            "left_out": 0,
            "top1": float(is_right[:, 0].mean()),
            "top5": float(is_right.any(axis=1).mean()),
            "loss": float((np.logaddexp(0, logits) - right * logits).mean()),
            "calibration_error": float(np.abs(gaps).sum() / shares.size),
            "calibration_bins": self._bins,
            "class_counts": tuple(counts.tolist()),
            "class_accuracy": by_class(hits / np.maximum(counts, 1), counts),
            "mean_average_precision": float(precision[judged].mean()) if len(judged) else None,
            "f1": float(f1[judged].mean()) if len(judged) else None,
            "class_average_precision": by_class(precision, counts),
            "class_f1": by_class(f1, counts),
        }


def bin_gaps(confidence: np.ndarray, is_right: np.ndarray, bins: int) -> np.ndarray:
    """Returns the sums of confidence minus correctness in bins of equal width.

    The bin m holds confidences in (m / bins, (m + 1) / bins].
    """
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    return np.bincount(place, confidence - is_right, bins)


def by_class(values: np.ndarray, counts: np.ndarray) -> tuple[float | None, ...]:
    """Returns the value of each class; None for classes without images."""
    return tuple(float(v) if n else None for v, n in zip(values, counts, strict=True))


def average_precision(scores: np.ndarray, right: np.ndarray) -> float:
    """Returns the sum over recalls of their increase times the precision; equal scores rank as one.

    Args:
        scores: `(images,)`.
        right: bool `(images,)`, True at least once.
    """
    _, taken, hits = _cuts(scores, right)
    return float((np.diff(hits, prepend=0) * hits / taken).sum() / hits[-1])


def _cuts(scores: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the different scores, the highest first, and two counts for each score: the images
    with at least this score, and the right images among them.
    """
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.diff(scores[order], append=-np.inf))
    return scores[order][last], last + 1, right[order].cumsum()[last]
