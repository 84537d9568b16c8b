"""The contents of a data set before preparation: images, labels and class names."""

import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from keras_vit.config import Task
from keras_vit.config.rules import choice
from keras_vit.data.order import count_labels
from keras_vit.data.targets import FORMS, Targets
from keras_vit.errors import ConfigError, listed, nearest, shown
from keras_vit.images.class_names import match_classes
from keras_vit.support.text import visible

CLASSIFICATION = ("single_label", "multi_label")
"""Tasks whose labels are classes of whole images."""

_AT_ONCE = 256

MOST_NUMBER = float(np.finfo("float32").max)
"""Largest absolute value of a regression target."""


class Encoded(io.BytesIO):
    """The bytes of an image file, and its name in messages."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name


@dataclasses.dataclass(frozen=True)
class Records:
    """Images with the labels of one task.

    Args:
        name: name of the data set in messages.
        images: images in any form that `Preprocessor.decode` takes.
        labels: single label, integers `(images,)`, indices into `class_names`; multi-label, zeros
            and ones `(images, classes)`, kept as bool; regression, `(images, outputs)`, kept as
            float32; with `targets`, the paths of their files, `(images,)`, of type object.
        class_names: one name per class, or per output.
        decoded: by index, the output of `Preprocessor.decode`; None without a cache.
        sizes: index -> (height, width), of the images that were inspected.
        unreadable: name of each image that was skipped -> reason.
        task: what the labels are, see `keras_vit.config.Prediction`; None for a single label or
            multi-label, by the shape of the labels.
        targets: how masks and depth maps are read; None for labels of whole images.

    Raises:
        ConfigError: the data set is empty, there are more or fewer labels than images, or a label
            is not an index into `class_names`, neither 0 nor 1, or not finite.
    """

    name: str
    images: Sequence[Any]
    labels: np.ndarray
    class_names: tuple[str, ...]
    decoded: list[Any] | None = None
    sizes: Mapping[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    unreadable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    task: Any = None
    targets: Targets | None = None

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels)
        task: Task = self.task or ("multi_label" if labels.ndim == 2 else "single_label")
        object.__setattr__(self, "task", task)
        kinds = {"single_label": (1, "ui"), "multi_label": (2, "uifb"), "regression": (2, "fiu")}
        kinds |= dict.fromkeys(FORMS, (1, "O"))
        if labels.ndim != kinds[task][0] or labels.dtype.kind not in kinds[task][1]:
            raise ConfigError(
                f"{self.name}: labels are {labels.dtype} of shape {labels.shape}, which do not fit "
                f"task={task!r}. Expected integers (images,) for 'single_label', zeros and ones "
                "(images, classes) for 'multi_label', or numbers (images, outputs) for "
                "'regression'."
            )
        if len(labels) != len(self.images):
            raise ConfigError(f"{self.name}: {len(self.images)} images and {len(labels)} labels.")
        if not len(labels):
            raise ConfigError(f"{self.name}: no images.")
        if labels.ndim == 2:
            object.__setattr__(self, "labels", self._check_rows(labels))
        if labels.ndim == 2 or self.targets is not None:
            return
        wrong = np.flatnonzero((labels < 0) | (labels >= len(self.class_names)))
        if len(wrong):
            raise ConfigError(
                f"{self.name}: label {labels[wrong[0]]} of {self.where(int(wrong[0]))} is out of "
                f"range, and {len(wrong) - 1} more; expected 0 to {len(self.class_names) - 1} for "
                f"{len(self.class_names)} classes."
            )
        object.__setattr__(self, "labels", labels.astype(np.int32))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def counts(self) -> np.ndarray:
        """Images per class, `(classes,)`.

        Raises:
            ConfigError: the data are for regression, segmentation or depth.
        """
        if self.task not in CLASSIFICATION:
            raise ConfigError(f"{self.name}: labels of task={self.task!r} have no class to count.")
        return count_labels(self.labels, len(self.class_names))

    def _check_rows(self, labels: np.ndarray) -> np.ndarray:
        if labels.shape[1] != len(self.class_names):
            raise ConfigError(
                f"{self.name}: labels of shape {labels.shape} have {labels.shape[1]} columns, "
                f"expected {len(self.class_names)}: {listed(self.class_names)}."
            )
        kind, expected, fits = "bool", "0 or 1", (labels == 0) | (labels == 1)
        if self.task == "regression":
            kind, expected, fits = "float32", "a finite number", np.abs(labels) <= MOST_NUMBER
        if len(odd := np.argwhere(~fits)):
            row, column = odd[0]
            raise ConfigError(
                f"{self.name}: {self.where(int(row))} has {labels[row, column]} for "
                f"{self.class_names[column]}, expected {expected}."
            )
        return labels.astype(kind)

    def where(self, index: int) -> str:
        """Returns the name of an image in messages: its path, or its index."""
        image = self.images[index]
        return image if isinstance(image, str) else f"image {index}"

    def name_reason(self, index: int, error: ConfigError) -> str:
        """Returns the message of an error, with the image's name."""
        where = visible(self.where(index))
        return str(error) if where in str(error) else f"{where}: {error}"

    def in_order_of(self, class_names: Sequence[str] | None) -> "Records":
        """Returns the records with labels in the order of other names, in their spelling.

        None changes nothing, nor do names for regression with one output or another number of
        outputs. Class indices in masks are translated when they are read.

        Raises:
            ConfigError: as `match_classes`.
        """
        if class_names is None:
            return self
        if self.task == "regression" and not 1 < len(class_names) == len(self.class_names):
            return self
        places = np.array(match_classes(self.class_names, class_names, f"{self.name}: "))
        labels, targets = self.labels, self.targets
        if targets is not None:
            targets = dataclasses.replace(targets, classes=places[targets.classes])
        elif self.task == "single_label":
            labels = places[labels]
        else:
            labels = np.zeros((len(self), len(class_names)), self.labels.dtype)
            labels[:, places] = self.labels
        names = tuple(class_names)
        return dataclasses.replace(self, labels=labels, targets=targets, class_names=names)

    def select(self, indices: np.ndarray) -> "Records":
        """Returns the records at these indices, in this order."""
        numbers = indices.tolist()
        return dataclasses.replace(
            self,
            images=_Chosen(self.images, indices),
            labels=self.labels[indices],
            decoded=self.decoded and [self.decoded[k] for k in numbers],
            sizes={place: self.sizes[k] for place, k in enumerate(numbers) if k in self.sizes},
        )


@dataclasses.dataclass(frozen=True)
class _Chosen(Sequence[Any]):
    images: Sequence[Any]
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        return self.images[int(self.indices[index])]


@dataclasses.dataclass(frozen=True)
class RowImages(Sequence[Any]):
    """The images of the rows of another library's table, read one by one.

    Args:
        name: name of the data set in messages.
        rows: the rows by index.
        key: name or position of the image in a row. The image may be bytes of a file, or a dict
            with `bytes` or else `path`, as the library `datasets` gives it.
    """

    name: str
    rows: Any
    key: str | int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        image = read_value(self.rows[int(index)], self.key, 0, self.name, int(index))
        path = None
        if isinstance(image, Mapping):
            image, path = image["bytes"], image["path"]
            if image is None:
                return path
        if isinstance(image, bytes):
            return Encoded(image, path or f"{self.name}, image {int(index)}")
        return image


def read_rows(rows: Any) -> Iterator[Any]:
    """Yields all rows of a table, many at once if it has `__getitems__`."""
    for start in range(0, len(rows), _AT_ONCE):
        numbers = list(range(start, min(start + _AT_ONCE, len(rows))))
        if hasattr(rows, "__getitems__"):
            yield from rows.__getitems__(numbers)
        else:
            yield from (rows[k] for k in numbers)


def read_value(record: Any, key: str | int, place: int, title: str, number: int) -> Any:
    """Returns the value of a record at `key`; if that is a name, a tuple has it at `place`.

    Raises:
        ConfigError: the record lacks the value; the message names the record by `number`.
    """
    if record is None:
        raise ConfigError(
            f"{title}: record {number} was removed by a filter, so the indices have gaps. Filter "
            "before the records are stored, or select the remaining records: source[indices]."
        )
    is_place = isinstance(record, tuple | list) and isinstance(key, str)
    try:
        return record[place if is_place else key]
    except (LookupError, TypeError) as error:
        keys = f" with {listed(map(str, record))}" if isinstance(record, Mapping) else ""
        raise ConfigError(
            f"{title}: record {number} is {type(record).__name__}{keys}, expected a dict with "
            f"{key!r} or a tuple (image, label). Parse it by grain.MapDataset.source(...).map(...) "
            "or name the keys by image= and label_column=."
        ) from error


def multi_hot(
    lists: Sequence[Any], class_names: Sequence[str] | None, title: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns bool labels `(images, classes)` of a list of labels per image, and the class names.

    Args:
        lists: for each image its labels, as words or as indices into `class_names`.
        class_names: names of the classes; None for all labels, sorted.
        title: name of the data set in messages.

    Raises:
        ConfigError: a label is not in `class_names`, or an image has no list.
    """
    for row, labels in enumerate(lists):
        if not np.iterable(labels) or None in tuple(labels):
            raise ConfigError(
                f"{title}: image {row} has {shown(labels)}, expected a list of its labels."
            )
    keys = list(class_names or sorted({label for row in lists for label in row}))
    places: dict[Any, int] = {key: k for k, key in enumerate(keys)}
    if class_names:
        places |= {k: k for k in range(len(keys))}
    names = tuple(map(str, keys))
    hot = np.zeros((len(lists), len(names)), bool)
    for row, labels in enumerate(lists):
        for label in labels:
            if label not in places:
                raise ConfigError(
                    f"{title}: image {row} has the label {label!r}, which is not in class_names."
                    f"{nearest(str(label), names)}"
                )
            hot[row, places[label]] = True
    return hot, names


def label_array(labels: Any, title: str) -> np.ndarray:
    """Returns labels as an array.

    Raises:
        ConfigError: a label is neither a word nor a number, or the labels of images differ in
            length.
    """
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise ConfigError(
            f"{title}: the labels of images differ in length; expected a class per image, or zeros "
            "and ones (images, classes)."
        ) from error
    if array.dtype.kind in "UO":  # NumPy would make a word of NaN
        for k, label in enumerate(labels if isinstance(labels, list) else array.tolist()):
            if not isinstance(label, (str, int, np.integer)):
                raise ConfigError(
                    f"{title}: image {k} has the label {shown(label)}; expected a word or an int."
                )
    return array


def choose_task(task: Task | None, preprocessor: Any) -> Task | None:
    """Returns the task of data: the caller's, or that of a regression model.

    None means that the form of the labels decides between a single label and multi-label.

    Raises:
        ConfigError: there is no such task, or it is segmentation or depth.
    """
    choice(*get_args(Task)).check("task", task or "single_label")
    of_model = getattr(preprocessor, "task", None)
    if (dense := task or of_model) in FORMS:
        raise ConfigError(
            f"task={dense!r} needs a target for each pixel: give from_folder(..., targets=), a "
            "folder of masks or depth maps."
        )
    return task or ("regression" if of_model == "regression" else None)


def find_classes(
    labels: Any,
    class_names: Sequence[str] | None,
    preprocessor: Any,
    title: str,
    task: Task | None,
) -> tuple[np.ndarray, tuple[str, ...], Task | None]:
    """Returns the labels as indices, the name of each class, and the result of `choose_task`.

    Args:
        labels: as for `from_arrays`.
        class_names: names of the classes, in the order of the indices. None takes the sorted words;
            for integers the names of the model, or else the indices.
        preprocessor: a `Preprocessor`, or a model, whose class names or number of classes are used.
        title: name of the data set in messages.
        task: the caller's task, or None.

    Raises:
        ConfigError: a word is not in `class_names`; or as `label_array`.
    """
    labels = label_array(labels, title)
    task = choose_task(task, preprocessor)
    if task == "regression":
        labels = labels[:, None] if labels.ndim == 1 else labels
        return labels, tuple(class_names or map(str, range(labels.shape[-1]))), task
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels)
    known = getattr(preprocessor, "class_names", None)
    prediction = getattr(preprocessor, "prediction", None)
    is_column = labels.shape[1:] == (1,) and np.isin(labels, (0, 1)).all()
    if is_column and task != "multi_label" and getattr(prediction, "is_binary", False):
        labels = labels[:, 0].astype("int32")
    if labels.dtype.kind not in "UO":
        count = getattr(prediction, "num_answers", 0)
        if not count and labels.ndim == 2:
            count = labels.shape[1]
        elif not count and labels.dtype.kind in "ui" and labels.size:
            count = max(int(labels.max()), 0) + 1
        return labels, tuple(class_names or known or map(str, range(count))), task
    words, indices = np.unique(labels.astype(str), return_inverse=True)
    names = tuple(class_names or words.tolist())
    return np.array(match_classes(words.tolist(), names, f"{title}: "))[indices], names, task
