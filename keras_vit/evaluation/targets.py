"""Turns labels of every form into the targets of a batch, matched by class names."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_vit.data.inspection import describe_mismatch
from keras_vit.errors import ConfigError
from keras_vit.evaluation.batches import predict, read_batches
from keras_vit.images.class_names import class_index, find_names, match_classes
from keras_vit.images.inputs import as_array
from keras_vit.models.losses import per_class


def acceptable(labels: Any, num_classes: int, first: int = 0) -> np.ndarray:
    """Returns True for each right class of each image, bool `(batch, num_classes)`.

    Args:
        labels: integers `(batch,)` or `(batch, 1)`; an array of zeros and ones
            `(batch, num_classes)`, one-hot or not; or a list with a list of acceptable
            classes for each image, which may be empty.
        num_classes: number of classes of the model.
        first: index of the first image, for messages.

    Raises:
        ConfigError: a label is out of range, or the labels have another form.

    >>> from keras_vit.evaluation.targets import acceptable
    >>> acceptable([[0, 2], []], 3).astype(int)
    array([[1, 0, 1],
           [0, 0, 0]])
    """
    if _are_lists(labels):
        lists = labels
    else:
        array = as_array(labels)
        are_rows = array.ndim == 2 and array.shape[1] == num_classes
        if are_rows and (num_classes > 1 or array.dtype.kind in "fb"):
            return _as_bool(array, first)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1 or not _are_whole(array):
            raise ConfigError(
                f"Labels must be integers (batch,), zeros and ones (batch, {num_classes}) for "
                f"{num_classes} classes, or a list of lists of classes; found {array.dtype} "
                f"{array.shape}."
            )
        lists = array[:, None]
    right = np.zeros((len(lists), num_classes), bool)
    for row, classes in enumerate(lists):
        if np.ndim(classes) == 0 and not isinstance(classes, (set, frozenset)):
            raise ConfigError(f"Image {first + row}: expected a list of classes, found {classes}.")
        for label in classes:
            is_number = isinstance(label, (int, float, np.number, np.bool_))
            if not is_number or not 0 <= label < num_classes or int(label) != label:
                raise ConfigError(
                    f"Image {first + row} has label {label}; the model has classes 0 to "
                    f"{num_classes - 1}."
                )
            if right[row, int(label)]:
                raise ConfigError(
                    f"Image {first + row} lists class {label} twice. Zeros and ones must be an "
                    "array, not lists."
                )
            right[row, int(label)] = True
    return right


def numbers_or_rows(labels: Any) -> np.ndarray:
    """Returns labels as classes, int32 `(batch,)`, or as zeros and ones, bool `(batch, classes)`.

    Raises:
        ConfigError: the labels are lists of classes, or of another form.
    """
    if _are_lists(labels):
        raise ConfigError(
            "The labels are lists of classes; expected one class per image, or zeros and "
            "ones (batch, classes) for multi-label data."
        )
    array = as_array(labels)
    if array.ndim == 2 and (array.shape[1] > 1 or array.dtype.kind == "b"):
        return _as_bool(array, 0)
    array = array.reshape(-1) if array.ndim == 2 else array
    if array.ndim != 1 or not _are_whole(array) or not ((array >= 0) & (array < 2**31)).all():
        raise ConfigError(
            "Labels must be integers (batch,) from 0, or one-hot (batch, classes); found "
            f"{array.dtype} {array.shape}."
        )
    return array.astype("int32")


def undo_one_hot(labels: np.ndarray) -> np.ndarray:
    """Returns the result of `numbers_or_rows` as classes if every image has exactly one."""
    if labels.ndim == 2 and (labels.sum(axis=1) == 1).all():
        return labels.argmax(axis=1).astype("int32")
    return labels


def match_columns(
    model: Any, data: Any, classes: Sequence[int | str] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the outputs to choose from, and for each class of the data its place among them.

    A model without names takes data with as many classes in their order.

    Raises:
        ConfigError: as `class_index` and `match_classes`; `classes` is empty or has a class twice;
            or only one of data and model is for regression.
    """
    is_regression = model.task == "regression"
    task = getattr(data, "task", model.task)
    if (task == "regression") != is_regression:
        raise ConfigError(f"The data do not fit: {describe_mismatch(model, task)}.")
    labels: Sequence[str] | None = model.class_names
    competing = np.arange(model.prediction.num_answers)
    if classes is not None:
        chosen = [class_index(each, labels, len(competing), "classes") for each in classes]
        if not chosen or len(set(chosen)) != len(chosen):
            raise ConfigError(f"classes: expected different classes, found {len(chosen)} of them.")
        competing = np.array(chosen)
        labels = labels and [labels[k] for k in competing.tolist()]
    names = find_names(data)
    is_whole = names is None or len(names) == len(competing)
    has_no_order = is_regression and not (is_whole and len(competing) > 1)
    if names is None or (labels is None and is_whole) or has_no_order:
        return competing, np.arange(len(competing))
    return competing, np.array(match_classes(names, labels or [*map(str, competing)]))


def predict_targets(
    model: Any,
    data: Any,
    competing: np.ndarray,
    places: np.ndarray,
    batch_size: int,
    prepared: bool,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields outputs and targets of each batch, both `(batch, competing classes)`.

    The outputs are float64. The targets are True for each right class, or float64 for regression.

    Args:
        model, data, batch_size, prepared: as for `evaluate`.
        competing, places: the result of `match_columns`.

    Raises:
        ConfigError: the data are empty or have no labels, labels do not fit the model, or outputs
            are not finite.
    """
    read = _as_numbers if model.task == "regression" else acceptable
    seen = 0
    for outputs, labels in predict(
        model, ["logits"], read_batches(model, data, batch_size, prepared)
    ):
        if labels is None:
            raise ConfigError("The data have no labels: expected batches (images, labels).")
        logits = per_class(outputs["logits"], model.prediction, stage="logits")
        logits = logits[:, competing].astype("float64")
        if odd := np.flatnonzero(~np.isfinite(logits).all(axis=1)).tolist():
            raise ConfigError(f"The logits of image {seen + odd[0]} are not finite.")
        given = read(labels, len(places), seen)
        targets = np.zeros(logits.shape, given.dtype)
        targets[:, places] = given
        seen += len(logits)
        yield logits, targets
    if not seen:
        raise ConfigError("The data are empty, expected at least one batch.")


def _as_numbers(labels: Any, outputs: int, first: int) -> np.ndarray:
    """Returns the targets of a batch of a regression model, float64 `(batch, outputs)`."""
    targets = as_array(labels)
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.shape[1:] != (outputs,) or targets.dtype.kind not in "fiu":
        raise ConfigError(
            f"A regression model needs a target for each image and output: expected shape "
            f"{(len(targets), outputs)}, found {targets.dtype} {targets.shape}."
        )
    if odd := np.flatnonzero(~np.isfinite(targets).all(axis=1)).tolist():
        raise ConfigError(f"The targets of image {first + odd[0]} are not finite.")
    return targets.astype("float64")


def _are_lists(labels: Any) -> bool:
    if isinstance(labels, (list, tuple)):
        return any(np.ndim(label) == 1 or isinstance(label, (set, frozenset)) for label in labels)
    return isinstance(labels, np.ndarray) and labels.dtype.kind == "O"


def _as_bool(array: np.ndarray, first: int) -> np.ndarray:
    if odd := np.flatnonzero(((array != 0) & (array != 1)).any(axis=1)).tolist():
        raise ConfigError(
            f"Labels of image {first + odd[0]} are neither 0 nor 1. Mixup and cutmix images cannot "
            "be scored; give data without augmentation."
        )
    return array.astype(bool)


def _are_whole(array: np.ndarray) -> bool:
    return array.dtype.kind in "iub" or (
        array.dtype.kind == "f" and bool((array == np.rint(array)).all())
    )
