"""Linear classifiers on frozen features: the linear probe and few-shot accuracy."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_vit.config import Task
from keras_vit.data.order import stratify
from keras_vit.errors import ConfigError, expect_model, shown
from keras_vit.evaluation.least_squares import LeastSquares, estimate, make_targets
from keras_vit.evaluation.leave_one_out import score
from keras_vit.evaluation.targets import numbers_or_rows, undo_one_hot
from keras_vit.images.inputs import as_array
from keras_vit.models.heads import copy_with_head
from keras_vit.models.vision_transformer import VisionTransformer

STRENGTHS = tuple(4.0**k for k in range(-5, 11))
"""The strengths of l2 that `linear_probe` tries: 0.001 to a million, for standardised features."""


@dataclasses.dataclass(frozen=True, eq=False)
class LinearProbe:
    """A linear classifier of features.

    Args:
        kernel: float64 `(width, classes)`.
        bias: float64 `(classes,)`.
        l2: strength of the regularisation.
        validation_accuracy: accuracy on held-out images of a probe fitted to the remaining images
            with this `l2`; multi-label, the mean average precision. None for a single `l2`.
        task: `"single_label"`, or `"multi_label"` if an image may have several labels or no label.
    """

    kernel: np.ndarray
    bias: np.ndarray
    l2: float
    validation_accuracy: float | None = None
    task: Task = "single_label"

    def predict(self, features: Any) -> np.ndarray:
        """Returns the class of each image, `(images,)`; multi-label, bool `(images, classes)`."""
        answers = [
            scores > 0 if self.task == "multi_label" else scores.argmax(axis=1)
            for scores in self._scores(features)
        ]
        return np.concatenate(answers)

    def accuracy(self, features: Any, labels: Any) -> float:
        """Returns the accuracy on labelled features; multi-label, the mean average precision.

        Classes without images do not count in the mean.

        Raises:
            ConfigError: the labels do not fit the features or the classes of the probe.
        """
        is_multi_label = self.task == "multi_label"
        labels = as_labels(labels, len(features), is_multi_label)
        expected = (len(features), *self.bias.shape) if is_multi_label else (len(features),)
        if labels.shape != expected:
            raise ConfigError(f"Labels have shape {labels.shape}; expected {expected}.")
        if not is_multi_label and labels.max() >= len(self.bias):
            raise ConfigError(
                f"There is label {labels.max()}; the probe has classes 0 to {len(self.bias) - 1}."
            )
        return score(np.concatenate(list(self._scores(features))), labels)

    def _scores(self, features: Any) -> Iterator[np.ndarray]:
        """Yields estimates of the targets -1 and 1, `(images of a chunk, classes)`."""
        features = as_features(features)
        if features.shape[1] != len(self.kernel):
            raise ConfigError(
                f"The probe takes features of width {len(self.kernel)}, found {features.shape[1]}."
            )
        for _, scores in estimate(features, self.kernel, self.bias):
            yield scores

    def build_model(
        self, model: VisionTransformer, class_names: Sequence[str] | None = None
    ) -> VisionTransformer:
        """Returns a classifier: the model that made the features, with the probe as its head.

        Its logits are least-squares estimates of -1 and 1. The largest one is the class, or, for
        multi-label, each one above 0. Their softmax or sigmoid is not a probability.

        Args:
            model: the model whose `pre_logits` are the features; it is not changed.
            class_names: one name per class.

        Raises:
            ConfigError: the width of the features differs from the model's pre_logits.
        """
        fields = {"task": self.task}
        return copy_with_head(expect_model(model), self.kernel, self.bias, class_names, fields)


def linear_probe(
    features: Any,
    labels: Any,
    *,
    l2: float | Sequence[float] = STRENGTHS,
    validation_split: float = 0.2,
    num_classes: int | None = None,
    seed: int = 0,
) -> LinearProbe:
    """Fits a linear classifier on frozen features (section 4.1): ridge regression to -1 and 1.

    Features are standardised; the bias is not regularised. With several strengths, the probe takes
    the one with the best accuracy (multi-label, mean average precision) on a held-out fraction of
    every class; among equals, the smallest squared error there decides. The final fit uses all
    images.

    Args:
        features: `(images, width)`, as `keras_vit.evaluation.features` returns them.
        labels: integers `(images,)`, or zeros and ones `(images, classes)`: one-hot, or
            multi-label.
        l2: a strength of regularisation, or a sequence of strengths to choose from.
        validation_split: fraction of each class that is held out for the choice.
        num_classes: number of classes; None for the largest label plus one.
        seed: seed of the held-out fraction.

    Raises:
        ConfigError: features are not finite or the same for all images, there are more or fewer
            labels than features, or an argument is out of range.

    >>> import numpy as np, keras_vit
    >>> values = np.array([[0.0], [0.1], [0.9], [1.0]])
    >>> probe = keras_vit.evaluation.linear_probe(values, [0, 0, 1, 1], l2=1)
    >>> probe.predict([[0.2], [0.8]])
    array([0, 1])
    """
    features, labels = _check(features, labels)
    classes = _count_classes(labels, num_classes)
    strengths = np.atleast_1d(l2).astype(float).tolist()
    if not strengths or not all(0 < strength < np.inf for strength in strengths):
        raise ConfigError(f"l2={l2!r}, expected positive numbers.")
    whole = LeastSquares(features, labels, classes)
    if not whole.has_signal:
        raise ConfigError("The features are the same for all images.")
    task: Task = "multi_label" if labels.ndim == 2 else "single_label"
    if len(strengths) == 1:
        return LinearProbe(*whole.solve(strengths[0]), strengths[0], None, task)
    if not 0 < validation_split < 1:
        raise ConfigError(f"validation_split={validation_split}, expected a number in (0, 1).")
    fitted, held_out = stratify(labels, validation_split, seed)
    if not len(held_out):
        raise ConfigError("Every class has only one image, too few to hold out. Give one l2.")
    solver = LeastSquares(features, labels, classes, fitted)
    is_multi_label = task == "multi_label"
    ranking = []
    for strength in strengths:
        parts, error = [], 0.0
        for place, scores in estimate(features, *solver.solve(strength), held_out):
            truth = labels[held_out[place]]
            parts.append(scores if is_multi_label else scores.argmax(axis=1) == truth)
            error += float(((scores - make_targets(truth, classes)) ** 2).sum())
        results = np.concatenate(parts)
        quality = score(results, labels[held_out]) if is_multi_label else float(results.mean())
        ranking.append((quality, -error, strength))
    accuracy, _, best = max(ranking)
    return LinearProbe(*whole.solve(best), best, accuracy, task)


def few_shot(
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    shots: int | Sequence[int] = (1, 5, 10),
    *,
    num_seeds: int = 3,
    l2: float = 2.0**10,
) -> dict[int, list[float]]:
    """Measures few-shot accuracy: linear probes on k images of each class (Figure 4).

    The images of seed s are the first k of `numpy.random.default_rng(s).permutation` of each
    class in turn. Images and `l2` are the same as in big_vision's `evaluators/fewshot_lsr.py`.

    Args:
        train: features and labels to draw the images from, as `features` returns them.
        test: features and labels to measure on.
        shots: number of images per class, or several numbers.
        num_seeds: number of draws; the seeds count from 0.
        l2: strength of regularisation, for standardised features.

    Returns:
        The accuracies, `{shots: [accuracy of each seed]}`.

    Raises:
        ConfigError: a class has fewer images than shots; or as `linear_probe`.
    """
    features, labels = _pair("train", train)
    test_features, test_labels = _pair("test", test)
    shots = np.ravel(shots).tolist()
    if labels.ndim == 2 or test_labels.ndim == 2:
        raise ConfigError("few_shot needs one class per image; these labels are multi-label.")
    num_classes = _count_classes(labels, None)
    if test_labels.max() >= num_classes:
        raise ConfigError(f"test has label {test_labels.max()}, train only 0 to {num_classes - 1}.")
    counts = np.bincount(labels, minlength=num_classes)
    if not shots or min(shots) < 1 or counts.min() < max(shots):
        raise ConfigError(
            f"shots={tuple(shots)}: expected 1 to {counts.min()}, the number of images of class "
            f"{counts.argmin()}."
        )
    if num_seeds < 1 or not 0 < l2 < np.inf:
        raise ConfigError(f"num_seeds={num_seeds} and l2={l2}: expected positive numbers.")
    accuracies: dict[int, list[float]] = {k: [] for k in shots}
    for seed in range(num_seeds):
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(np.flatnonzero(labels == k)) for k in range(num_classes)]
        for k in shots:
            chosen = np.concatenate([order[:k] for order in orders])
            solution = LeastSquares(features, labels, num_classes, chosen).solve(l2)
            accuracies[k].append(LinearProbe(*solution, l2).accuracy(test_features, test_labels))
    return accuracies


def _pair(name: str, given: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ConfigError(
            f"{name}: expected the pair that keras_vit.evaluation.features returns, "
            f"found {shown(given)}."
        )
    return _check(*given)


def _check(features: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    features = as_features(features)
    return features, as_labels(labels, len(features))


def as_features(features: Any) -> np.ndarray:
    """Returns features `(images, width)`; raises `ConfigError` unless they are finite."""
    features = as_array(features)
    if features.ndim != 2 or 0 in features.shape or features.dtype.kind not in "fiub":
        raise ConfigError(
            f"Features must be numbers (images, width), found {features.dtype} {features.shape}; "
            "pool the tokens first, such as by pooling='gap'."
        )
    step = 8192
    for k in range(0, len(features), step):
        if not np.isfinite(features[k : k + step]).all():
            raise ConfigError("Features must be finite.")
    return features


def as_labels(labels: Any, count: int, keep_rows: bool = False) -> np.ndarray:
    """Returns labels as integers `(images,)`; multi-label, bool `(images, classes)`.

    Args:
        labels: labels as for `linear_probe`.
        count: number of images.
        keep_rows: whether one-hot rows stay rows.

    Raises:
        ConfigError: there are other than `count` labels.
    """
    if labels is None:
        raise ConfigError("The features have no labels; extract them from (images, labels).")
    labels = numbers_or_rows(labels)
    if not keep_rows:
        labels = undo_one_hot(labels)
    if len(labels) != count:
        raise ConfigError(f"{count} features and {len(labels)} labels: expected one label each.")
    return labels


def _count_classes(labels: np.ndarray, num_classes: int | None) -> int:
    largest = labels.shape[1] - 1 if labels.ndim == 2 else int(labels.max())
    if num_classes is not None and num_classes <= largest:
        raise ConfigError(f"num_classes={num_classes}, but there is label {largest}.")
    if labels.ndim == 2 and num_classes not in (None, largest + 1):
        raise ConfigError(f"num_classes={num_classes}, but labels have {largest + 1} columns.")
    return largest + 1 if num_classes is None else num_classes
