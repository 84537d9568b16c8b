"""Accuracy, loss and calibration of a classifier."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.config.rules import COUNT
from keras_vit.data.inspection import describe_mismatch
from keras_vit.errors import ConfigError, expect_model
from keras_vit.evaluation.batches import count_images
from keras_vit.evaluation.many_labels import ManyLabels, bin_gaps, by_class
from keras_vit.evaluation.numbers import evaluate_numbers
from keras_vit.evaluation.targets import acceptable, match_columns, predict_classes
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.progress import progress_bar


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The scores of a classifier, from `evaluate`; every share is in [0, 1].

    Args:
        count: number of images that were scored.
        left_out: number of images without an acceptable class; no score counts them.
        top1: share of images whose most probable class is right.
        top5: share of images with a right class among the five most probable classes, or
            among all classes of a model with fewer.
        loss: mean cross-entropy in nats, from the probability of the right class (the sum
            over all right classes).
        calibration_error: expected calibration error, the mean distance between
            confidence and accuracy over bins of equal width (Guo et al. 2017, Eq. 3).
        calibration_bins: number of these bins.
        class_counts: images per class; an image with several right classes counts for each.
        class_accuracy: share of each class's images that were right; None without images.
        real: accuracy on `real_labels`, or None.
        real_count: number of images with at least one class in `real_labels`.
        mean_average_precision: mean of `class_average_precision` over the classes with images, for
            a model with `thresholds`; None for other models.
        f1: mean of `class_f1` over the classes with images, for a model with `thresholds`.
        class_average_precision: average precision of each class, the sum over recalls of their
            increase times the precision (`average_precision_score` of scikit-learn); None without
            images.
        class_f1: F1 of each class at its threshold; None without images.
    """

    count: int
    left_out: int
    top1: float
    top5: float
    loss: float
    calibration_error: float
    calibration_bins: int
    class_counts: tuple[int, ...]
    class_accuracy: tuple[float | None, ...]
    real: float | None = None
    real_count: int = 0
    mean_average_precision: float | None = None
    f1: float | None = None
    class_average_precision: tuple[float | None, ...] = ()
    class_f1: tuple[float | None, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain JSON types."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}


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
    """Scores a classifier batch by batch; a thread reads the next batch meanwhile.

    Labels are class numbers, one-hot rows, or lists of acceptable classes. With lists, a
    prediction is right if the list holds it, and an image with an empty list is left out:
    the ReaL accuracy of "Are we done with ImageNet?" (arXiv 2006.07159, section 3).

    A model with `thresholds` gives images many labels (multi-label), and its scores have mean
    average precision and F1 too. No image is left out; `loss` is the mean binary cross-entropy of
    all images and classes, `calibration_error` is over all of these probabilities, and
    `class_accuracy` is the share of each class's images that reach the threshold, the recall.

    A model with `regression` predicts numbers: its labels are numbers `(batch, outputs)`, and its
    scores a `NumbersEvaluation` with mean absolute error and R2. Where model and data have the same
    names, in whatever order, the names match the numbers with the outputs.

    Args:
        model: a `VisionTransformer` with one prediction per image.
        data: a pair of images, as for `model.preprocessor`, and labels; or a data set of prepared
            images and labels: data of `keras_vit.data`, any `PyDataset`, `tf.data.Dataset` or
            iterable of batches. If the data have an attribute `class_names`, they are matched to
            the model's labels.
        real_labels: a second set of labels, one list of acceptable classes per image in the
            order of the data, such as the published ReaL labels; scored as `real`.
        classes: the model's classes that compete, by number or label, for data sets of a part
            of ImageNet's classes (ImageNet-A and -R have 200); the logits of all other classes
            are ignored. Numeric labels are then indices into `classes`. None: all compete.
        batch_size: images per step; a data set has its own batches.
        prepared: whether the images are an array that `model.preprocessor` has prepared.
        calibration_bins: bins of the calibration error.
        progress: whether a bar is shown on stderr, if it is a terminal.

    Raises:
        ConfigError: the data are empty, images, labels or class names do not fit the model,
            or logits are not finite; or `real_labels` or `classes` are given for numbers.

    >>> import numpy as np, keras_vit
    >>> model = keras_vit.VisionTransformer.from_preset("vit_digits")
    >>> blank = np.zeros((3, 8, 8, 1), "uint8")
    >>> keras_vit.evaluate(model, (blank, [[0, 1], [], range(10)])).count
    2
    """
    expect_model(model).config.demand_one_prediction("evaluate")
    COUNT.check("calibration_bins", calibration_bins)
    if model.config.regression:
        if real_labels is not None or classes is not None:
            raise ConfigError(
                "real_labels and classes are for classes; this model predicts numbers."
            )
        # The type of the result is that of classifiers: no type checker knows the kind of a model.
        numbers: Any = evaluate_numbers(model, data, batch_size, prepared, progress)
        return numbers
    if getattr(data, "regression", False):
        raise ConfigError(f"evaluate: {describe_mismatch(of_model=False)}.")
    competing, places = match_columns(model, data, classes)
    real = _Scores(len(competing), calibration_bins)
    scores: Any = _Scores(len(competing), calibration_bins)
    if model.thresholds is not None:
        scores = ManyLabels(np.asarray(model.thresholds)[competing], calibration_bins)
    seen = 0
    with progress_bar(progress, "Evaluating", count_images(data)) as advance:
        for logits, right in predict_classes(model, data, competing, places, batch_size, prepared):
            scores.add(logits, right)
            if real_labels is not None:
                lists = real_labels[seen : seen + len(logits)]
                if len(lists) < len(logits):
                    raise ConfigError(
                        f"real_labels has {len(real_labels)} lists; more images came."
                    )
                real.add(logits, acceptable(list(lists), len(competing), seen))
            seen += len(logits)
            advance(len(logits))
    if real_labels is not None and seen < len(real_labels):
        raise ConfigError(f"real_labels has {len(real_labels)} lists for {seen} images.")
    if scores.count == 0:
        raise ConfigError(f"None of the {seen} images has a label that is a class of the model.")
    fields = scores.result()
    if real.count:
        fields |= {"real": real.top1 / real.count, "real_count": real.count}
    return Evaluation(**fields)


class _Scores:
    """Sums of the scores over batches; the logits themselves are not kept."""

    def __init__(self, num_classes: int, bins: int) -> None:
        self.count = self.left_out = self.top1 = self.top5 = 0
        self.loss = 0.0
        self.class_counts = np.zeros(num_classes, int)
        self.class_right = np.zeros(num_classes, int)
        self.gaps = np.zeros(bins)

    def add(self, logits: np.ndarray, right: np.ndarray) -> None:
        """Adds a batch: logits and bool `right`, both `(batch, num_classes)`."""
        has_class = right.any(axis=1)
        self.left_out += int((~has_class).sum())
        logits, right = logits[has_class].astype("float64"), right[has_class]
        if not len(logits):
            return
        rank = _rank_best(logits, right)
        total = _log_sum(logits, True)
        self.loss += float((total - _log_sum(logits, right)).sum())
        hit = rank == 0
        self.count += len(logits)
        self.top1 += int(hit.sum())
        self.top5 += int((rank < 5).sum())
        self.class_counts += right.sum(axis=0)
        self.class_right += right[hit].sum(axis=0)
        self.gaps += bin_gaps(np.exp(logits.max(axis=1) - total), hit, len(self.gaps))

    def result(self) -> dict[str, Any]:
        """Returns the fields of an `Evaluation`, means over all images so far."""
        return {
            "count": self.count,
            "left_out": self.left_out,
            "top1": self.top1 / self.count,
            "top5": self.top5 / self.count,
            "loss": self.loss / self.count,
            "calibration_error": float(np.abs(self.gaps).sum() / self.count),
            "calibration_bins": len(self.gaps),
            "class_counts": tuple(self.class_counts.tolist()),
            "class_accuracy": by_class(
                self.class_right / np.maximum(self.class_counts, 1), self.class_counts
            ),
        }


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
