"""Metrics of arrays: average precision, R2 and calibration, one value per class or output."""

import numpy as np


def average_precision(scores: np.ndarray, right: np.ndarray) -> float:
    """Returns the average precision, the sum of precision times increase in recall.

    Equal scores have one rank.

    Args:
        scores: `(images,)`.
        right: bool `(images,)`, True at least once.
    """
    _, taken, hits = cuts(scores, right)
    return float((np.diff(hits, prepend=0) * hits / taken).sum() / hits[-1])


def average_precisions(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the average precision of each class, `(classes,)`; NaN without images.

    Args:
        scores: `(images, classes)`.
        right: bool `(images, classes)`.
    """
    pairs = zip(scores.T, right.T, strict=True)
    return np.array([average_precision(*each) if each[1].any() else np.nan for each in pairs])


def cuts(scores: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the different scores, the highest first, and two counts for each score: the images
    with at least this score, and the right images among them.
    """
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.diff(scores[order], append=-np.inf))
    return scores[order][last], last + 1, right[order].cumsum()[last]


def r2_scores(predicted: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the coefficient of determination of each output, `(outputs,)`.

    It is NaN for an output with the same target in all images. Both arguments are
    `(images, outputs)`.
    """
    spread = wanted.var(axis=0)
    return 1 - ((predicted - wanted) ** 2).mean(axis=0) / np.where(spread > 0, spread, np.nan)


def calibration_error(confidence: np.ndarray, is_right: np.ndarray, bins: int) -> float:
    """Returns the expected calibration error over bins of equal width (Guo et al. 2017, Eq. 3).

    The bin m holds confidences in (m / bins, (m + 1) / bins]. Both arrays have one axis.
    """
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    return float(np.abs(np.bincount(place, confidence - is_right, bins)).sum() / len(confidence))
