"""The accuracy of a linear model on images that it was not fitted to, without holding any out.

A least-squares fit without one image has a closed form. With the leverage h_i of an image, the
diagonal of the matrix that maps targets to estimates, the estimate of a fit without image i is

    y_i - (y_i - estimate_i) / (1 - h_i)

for the fit with all images (Allen 1974, PRESS). It holds exactly for a penalty that does not depend
on the images; the scales of the features are computed once, from all images and no label.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.evaluation.least_squares import LeastSquares, make_targets
from keras_vit.evaluation.metrics import average_precisions, r2_scores
from keras_vit.models.losses import compute_probabilities

STRENGTHS = tuple(4.0**k for k in range(-3, 10))
"""The strengths of l2 that are tried: 0.016 to 262,144, for standardised features."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """The best linear classifier of one kind of features among several.

    Args:
        name: name of the features.
        l2: strength of the regularisation.
        kernel, bias: float64 `(width, classes)` and `(classes,)`; the softmax of
            `features @ kernel + bias`, or multi-label the sigmoid, is calibrated.
        predictions: probability of each class by the fit without the image, `(images, classes)`;
            for regression the estimates of the targets.
        unseen: estimates of the targets by the fit without the image, with features and strength
            that were chosen without the image's tenth of the images, `(images, classes)`.
        errors: mean squared leave-one-out error of each combination, `{(name, l2): error}`.
    """

    name: str
    l2: float
    kernel: np.ndarray
    bias: np.ndarray
    predictions: np.ndarray
    unseen: np.ndarray
    errors: dict[tuple[str, float], float]


def score(estimates: np.ndarray, labels: np.ndarray) -> float:
    """Returns the accuracy, the mean average precision (multi-label) or the mean R2 (regression).

    Classes without images do not count.
    """
    if labels.ndim == 1:
        return float((estimates.argmax(axis=1) == labels).mean())
    if labels.dtype.kind == "f":
        return float(r2_scores(estimates, labels).mean())
    return float(np.nanmean(average_precisions(estimates, labels))) if labels.any() else 0.0


def choose(features: Mapping[str, np.ndarray], labels: np.ndarray, num_classes: int) -> Fit:
    """Returns the fit with the least squared leave-one-out error.

    The best of many candidates looks better than it is. So `unseen` is made tenth by tenth: the
    other nine tenths of the images choose features and strength.

    Args:
        features: `{name: (images, width)}`.
        labels: integers `(images,)`; multi-label, bool `(images, num_classes)`; regression,
            float64 of this shape, standardised.
        num_classes: number of classes.

    Raises:
        ConfigError: all features of a kind are the same in all images.
    """
    targets = make_targets(labels, num_classes)
    solvers: dict[str, LeastSquares] = {}
    tried: list[tuple[str, float]] = []
    errors = []
    for kind, values in features.items():
        solvers[kind] = solver = LeastSquares(values, labels, num_classes)
        if not solver.has_signal:
            raise ConfigError(f"The features {kind!r} are the same for all images.")
        for strength, scores in _all_scores(solver, values, labels):
            tried.append((kind, strength))
            errors.append(((scores - targets) ** 2).mean(axis=1))

    @functools.cache
    def compute_scores(combination: int) -> np.ndarray:
        kind, strength = tried[combination]
        return leave_one_out(solvers[kind], features[kind], labels, strength)

    per_image = np.array(errors)  # (combinations, images)
    tenths = np.random.default_rng(0).permutation(len(labels)) % 10
    unseen = np.empty(targets.shape)
    for tenth in range(10):
        inside = tenths == tenth
        unseen[inside] = compute_scores(int(per_image[:, ~inside].mean(axis=1).argmin()))[inside]
    means = per_image.mean(axis=1)
    best = int(means.argmin())
    (name, l2), scores = tried[best], compute_scores(best)
    scale, shift, predictions = _calibrated(scores, labels)
    kernel, bias = solvers[name].solve(l2)
    return Fit(
        name,
        l2,
        scale * kernel,
        scale * bias + shift,
        predictions,
        unseen,
        dict(zip(tried, means.tolist(), strict=True)),
    )


def _calibrated(scores: np.ndarray, labels: np.ndarray) -> tuple[Any, Any, np.ndarray]:
    """Returns scale, shift and probabilities of scores; regression scores are not changed."""
    if labels.dtype.kind == "f":
        return 1.0, 0.0, scores
    if labels.ndim == 2:
        scale, shift = platt_scaling(scores, labels)
        return scale, shift, compute_probabilities(scale * scores + shift, task="multi_label")
    factor = calibrating_scale(scores, labels)
    return factor, 0.0, compute_probabilities(factor * scores)


def leave_one_out(solver: LeastSquares, features: Any, labels: Any, l2: float) -> np.ndarray:
    """Returns the estimates of the targets of each image by the fit without it.

    Args:
        solver: the solutions for all images of `features`.
        features: `(images, width)`.
        labels: as for `choose`.
        l2: strength of the regularisation.
    """
    return next(scores for _, scores in _all_scores(solver, features, labels, (l2,)))


def _all_scores(
    solver: LeastSquares,
    features: np.ndarray,
    labels: np.ndarray,
    strengths: tuple[float, ...] = STRENGTHS,
) -> Iterator[tuple[float, np.ndarray]]:
    targets = make_targets(labels, len(solver.target_mean))
    coordinates, weights = solver.coordinates(features)
    for l2 in strengths:
        shrunk = 1 / (solver.values + l2)
        estimates = solver.target_mean + coordinates @ (solver.right * shrunk[:, None])
        leverage = 1 / len(targets) + weights @ shrunk
        yield l2, targets - (targets - estimates) / np.maximum(1 - leverage, 1e-12)[:, None]


def calibrating_scale(scores: np.ndarray, labels: np.ndarray) -> float:
    """Returns the factor of the scores whose softmax has the least cross-entropy.

    Temperature scaling (Guo et al. 2017, section 4.2); the loss is convex in the factor. The
    targets are smoothed by Bayes' rule, as in `platt_scaling`: n images that are all right show
    that the next one is right with probability (n + 1) / (n + 2), not that it always is.
    """
    scale, doubt = 1.0, 1 / (len(labels) + 2)
    wanted = np.full(scores.shape, doubt / (scores.shape[1] - 1))
    wanted[np.arange(len(labels)), labels] = 1 - doubt
    aim = (wanted * scores).sum(axis=1)
    for _ in range(100):
        p = compute_probabilities(scale * scores)
        mean = (p * scores).sum(axis=1)
        slope = float((mean - aim).mean())
        curvature = float(((p * scores**2).sum(axis=1) - mean**2).mean())
        step = slope / max(curvature, 1e-12)
        new = float(np.clip(scale - step, scale / 2, 2 * scale))
        if abs(new - scale) < 1e-9 * scale:
            break
        scale = new
    return scale


def platt_scaling(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns factor and offset of each class whose sigmoids have the least cross-entropy.

    The targets are smoothed by Bayes' rule, so that the results are finite even if the scores
    separate all images (Platt 1999; the damped Newton steps of Lin, Lin and Weng 2007).

    Args:
        scores: `(images, classes)`.
        labels: bool `(images, classes)`.

    Returns:
        Two arrays `(classes,)`.
    """
    counts, absent = labels.sum(axis=0), (~labels).sum(axis=0)
    wanted = np.where(labels, (counts + 1) / (counts + 2), 1 / (absent + 2))
    line = np.stack([np.zeros(len(counts)), np.log((counts + 1) / (absent + 1))])

    def loss(line: np.ndarray) -> np.ndarray:
        logits = line[0] * scores + line[1]
        return (np.logaddexp(0, logits) - wanted * logits).sum(axis=0)

    inputs = np.stack([scores, np.ones_like(scores)])
    for _ in range(100):
        p = compute_probabilities(line[0] * scores + line[1], task="multi_label")
        slope = (inputs * (p - wanted)).sum(axis=1)
        curvature = np.einsum("ink,jnk,nk->kij", inputs, inputs, p * (1 - p)) + 1e-9 * np.eye(2)
        step = np.linalg.solve(curvature, slope.T[..., None])[..., 0].T
        while (worse := loss(line - step) > loss(line) + 1e-12 * len(scores)).any():
            step = np.where(worse, step / 2, step)
        line = line - step
        if (np.abs(step) <= 1e-9 * (1 + np.abs(line))).all():
            break
    return line[0], line[1]


def compute_interval(share: float, labels: np.ndarray) -> tuple[float, float]:
    """Returns a confidence interval for a `score` on images with these labels (Wilson 1927).

    Its width is that of 98 % for independent scores. Leave-one-out scores depend on each other, and
    the classifier itself depends on the sample of images: in simulations, such intervals contain
    the true accuracy in more than nine of ten samples.

    The average precision of a class varies like a fraction of its images (the binomial interval
    of Boyd, Eng and Page 2013); the mean over K classes varies like a fraction of
    K^2 / sum(1 / images of the class) images.
    """
    count: float = len(labels)
    if labels.ndim == 2:
        counts = labels.sum(axis=0)
        count = len(counts) ** 2 / (1 / counts).sum()
    right, z = share * count, 2.326348
    centre = (right + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * np.sqrt(right * (count - right) / count + z * z / 4)
    return float(max(centre - half, 0.0)), float(min(centre + half, 1.0))


def learning_curve(
    features: np.ndarray, labels: np.ndarray, num_classes: int, l2: float, accuracy: float
) -> list[tuple[int, float]]:
    """Returns leave-one-out scores by number of images: a quarter, half, three quarters, all.

    Each is the mean of three random subsets, which for a single label keep the fraction of every
    class. The strength shrinks with the number of images.
    """
    one_group = [np.arange(len(labels))]
    groups = one_group if labels.ndim == 2 else [np.flatnonzero(labels == k) for k in set(labels)]
    curve = []
    for share in (0.25, 0.5, 0.75):
        accuracies, count = [], 0
        for seed in range(3):
            orders = map(np.random.default_rng(seed).permutation, groups)
            rows = np.concatenate([each[: max(2, round(share * len(each)))] for each in orders])
            part, truth, count = features[rows], labels[rows], len(rows)
            strength = l2 * count / len(labels)
            solver = LeastSquares(part, truth, num_classes)
            scores = leave_one_out(solver, part, truth, strength)
            accuracies.append(score(scores, truth))
        curve.append((count, float(np.mean(accuracies))))
    return [*curve, (len(labels), accuracy)]


def predict_gain(curve: Sequence[tuple[int, float]], more: int) -> float:
    """Returns the score that `more` images would add, by a power law through a learning curve.

    The error rate is assumed to fall as a power of the number of images (Hestness et al. 2017);
    an accuracy of 1 counts as half an error, whose logarithm is finite. The gain is at most the
    remaining error rate. A curve without two numbers of images gives NaN.
    """
    counts = np.array([count for count, _ in curve], float)
    if len(set(counts)) < 2:
        return float("nan")
    errors = np.array([max(1 - accuracy, 0.5 / count) for count, accuracy in curve])
    slope, intercept = np.polyfit(np.log(counts), np.log(errors), 1)
    now, later = (
        float(np.exp(intercept + slope * np.log(n))) for n in (counts[-1], counts[-1] + more)
    )
    return min(max(now - later, 0.0), 1 - curve[-1][1])
