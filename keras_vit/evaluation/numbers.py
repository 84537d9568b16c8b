"""Scores of models that predict numbers (regression)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.evaluation.batches import count_images, predict, read_batches
from keras_vit.images.inputs import as_array
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.progress import progress_bar


@dataclasses.dataclass(frozen=True)
class NumbersEvaluation:
    """The scores of a model of numbers, from `evaluate`, in the units of its targets.

    Args:
        count: number of images.
        loss: mean squared error over images and outputs.
        mean_absolute_error: mean over images and outputs.
        r2: coefficient of determination, the mean over outputs; 1 for perfect predictions, 0 for
            those of the targets' mean. None if an output has the same target in all images.
        output_mean_absolute_error: the error of each output.
        output_r2: the coefficient of each output, or None.
    """

    count: int
    loss: float
    mean_absolute_error: float
    r2: float | None
    output_mean_absolute_error: tuple[float, ...]
    output_r2: tuple[float | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain JSON types."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}


def evaluate_numbers(
    model: VisionTransformer, data: Any, batch_size: int, prepared: bool, progress: bool
) -> NumbersEvaluation:
    """Scores a model with `regression`; arguments and errors as of `evaluate`."""
    names = getattr(data, "class_names", None)
    if names is not None and not getattr(data, "regression", False):
        raise ConfigError(
            "The data have classes, and the model predicts numbers (regression=True): give "
            "(images, numbers), or the data of a table of numbers with regression=True."
        )
    order = _places(names, model.class_names)
    predictions, targets = [], []
    with progress_bar(progress, "Evaluating", count_images(data)) as advance:
        for outputs, labels in predict(
            model, ["logits"], read_batches(model, data, batch_size, prepared)
        ):
            predictions.append(outputs["logits"].astype("float64"))
            targets.append(_as_targets(labels, predictions[-1].shape)[:, order])
            advance(len(targets[-1]))
    if not targets:
        raise ConfigError("The data are empty: no batch came.")
    return score_numbers(np.concatenate(predictions), np.concatenate(targets))


def score_numbers(predicted: np.ndarray, wanted: np.ndarray) -> NumbersEvaluation:
    """Returns the scores of predictions and targets, both float64 `(images, outputs)`.

    Raises:
        ConfigError: a prediction or a target is not finite.
    """
    if not (np.isfinite(predicted).all() and np.isfinite(wanted).all()):
        raise ConfigError("Outputs of the model and targets must be finite numbers.")
    errors, spread = predicted - wanted, wanted.var(axis=0)
    r2 = [
        1 - float(error / of_mean) if of_mean > 0 else None
        for error, of_mean in zip((errors**2).mean(axis=0), spread, strict=True)
    ]
    each = np.abs(errors).mean(axis=0)
    known = [value for value in r2 if value is not None]
    return NumbersEvaluation(
        len(wanted),
        float((errors**2).mean()),
        float(each.mean()),
        float(np.mean(known)) if len(known) == len(r2) else None,
        tuple(each.tolist()),
        tuple(r2),
    )


def _places(names: Sequence[str] | None, labels: Sequence[str] | None) -> Any:
    """Returns the column of the data for each output, by its name if all names are the same."""
    if names is None or labels is None or sorted(names) != sorted(labels):
        return slice(None)
    return [names.index(label) for label in labels]


def _as_targets(labels: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the targets of a batch, float64 `(batch, outputs)`."""
    if labels is None:
        raise ConfigError("The data have no labels: expected batches (images, numbers).")
    targets = as_array(labels)
    if targets.ndim == 1 and shape[1] == 1:
        targets = targets[:, None]
    if targets.shape != shape or targets.dtype.kind not in "fiu":
        raise ConfigError(
            f"The model predicts {shape[1]} numbers per image (regression=True): expected targets "
            f"{shape}, found {targets.dtype} {targets.shape}."
        )
    return targets.astype("float64")
