"""Class names, among them those of ImageNet, and decision thresholds of multi-label models."""

import collections
import functools
import numbers
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_vit.errors import ConfigError, listed, nearest, shown

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "NAMED",
    "ClassNames",
    "Thresholds",
    "check_thresholds",
    "expand",
    "match_classes",
    "shorten",
    "top_labels",
]
__dir__ = __all__.copy

ClassNames = str | Sequence[str]
"""A name of a shipped list, or one name per class."""

Thresholds = float | Sequence[float]
"""The decision threshold of a multi-label model: one for all classes, or one per class."""

NAMED = {"imagenet1k": 1000, "imagenet21k": 21843}
"""Lists that ship with the package, and the number of names in each.

They have the order of ILSVRC 2012, and of Google's heads for ImageNet-21k.
"""

_WORDNET_ID = re.compile(r"n\d{8}")
_SHOWN = 5


@functools.cache
def _read(word: str) -> tuple[str, ...]:
    from importlib import resources

    text = resources.files(__name__).joinpath(f"{word}.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def expand(class_names: ClassNames) -> tuple[str, ...]:
    """Returns one name per class, in the order of the head.

    A name of a shipped list gives the lemmas of a WordNet synset: `"tench, Tinca tinca"`. Two
    classes may share a name (ImageNet-1k has two cranes).

    Args:
        class_names: `"imagenet1k"` (1,000 names), `"imagenet21k"` (21,843), or the names
            themselves.

    Raises:
        ConfigError: no shipped list has this name.

    >>> from keras_vit.images import class_names
    >>> class_names.expand("imagenet1k")[0]
    'tench, Tinca tinca'
    """
    if not isinstance(class_names, str):
        return tuple(class_names)
    if class_names not in NAMED:
        raise ConfigError(
            f"class_names={class_names!r}: unknown list.{nearest(class_names, NAMED)} "
            f"Known: {', '.join(NAMED)}; or give a sequence of names."
        )
    return _read(class_names)


def shorten(class_names: ClassNames | None, num_classes: int) -> str | tuple[str, ...] | None:
    """Returns labels as models and files store them: the name of a shipped list, or names.

    Args:
        class_names: the name of a shipped list, one name per class, or None.
        num_classes: number of classes that they must name.

    Raises:
        ConfigError: the name of the list is unknown, a label is not a string, or the number of
            labels is not `num_classes`.
    """
    if class_names is None:
        return None
    names = expand(class_names)
    if odd := [label for label in names if not isinstance(label, str)]:
        raise ConfigError(f"class_names holds {odd[0]!r}, expected {num_classes} strings.")
    if len(names) != num_classes:
        raise ConfigError(
            f"{len(names)} class_names, expected {num_classes} strings, one for each class; found "
            f"{listed(names)}."
        )
    shipped = (word for word, length in NAMED.items() if length == len(names))
    return next((word for word in shipped if _read(word) == names), names)


def match_classes(names: Sequence[str], class_names: Sequence[str], title: str = "") -> list[int]:
    """Finds the index in `class_names` of each class of the data.

    The indices are those of `pair_names`. If it finds none, names that are all numbers from `"0"`
    on, in any order, are read as indices.

    Args:
        names: class names of the data; they may be fewer than `class_names`.
        class_names: one name per class, such as those of a model.
        title: beginning of the message.

    Raises:
        ConfigError: a name fits no class, or several; the message lists the differences.

    >>> from keras_vit.images.class_names import match_classes
    >>> match_classes(["dog", "Great_Cat"], ["great cat, big cat", "bird", "dog"])
    [2, 0]
    """
    places, problems = pair_names(names, class_names)
    are_all_numbers = set(names) == set(map(str, range(len(names))))
    if not places and are_all_numbers and len(names) <= len(class_names):
        return [int(name) for name in names]
    if problems:
        rest = [name for k, name in enumerate(class_names) if k not in places]
        is_whole = len(names) == len(class_names)
        fix = "after model.class_names = None" if is_whole else f"at num_classes={len(names)}"
        raise ConfigError(
            f"{title}{len(problems)} of the data's {len(names)} classes do not match the "
            f"{len(class_names)} class_names: {'; '.join(problems[:_SHOWN])}. Not in the data: "
            f"{listed(rest)}. Rename the classes, or give the data's names as class_names. A model "
            f"takes other classes {fix}."
        )
    return places


def pair_names(names: Sequence[str], class_names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Returns the index in `class_names` of each name, and a line for each name without one.

    A name matches an equal name; or else a name that differs only in case, underscores or Unicode
    form; or else a name that has it between commas (`"tench"` in `"tench, Tinca tinca"`). Sorted
    WordNet ids of all classes of ImageNet have the order of its heads.
    """
    are_ids = len(names) in NAMED.values() and all(map(_WORDNET_ID.fullmatch, names))
    is_sorted = are_ids and len(names) == len(class_names) and list(names) == sorted(names)
    if is_sorted or list(names) == list(class_names):
        return list(range(len(names))), []
    table: dict[tuple[int, str], list[int]] = collections.defaultdict(list)
    for k, label in enumerate(class_names):
        parts = [(2, _fold(part)) for part in label.split(",")]
        for key in {(0, _nfc(label)), (1, _fold(label)), *parts}:
            table[key].append(k)
    places, problems = dict[int, str](), list[str]()
    for name in names:
        keys = (0, _nfc(name)), (1, _fold(name)), (2, _fold(name))
        fits = next((table[key] for key in keys if key in table), [])
        if len(fits) == 1 and fits[0] not in places:
            places[fits[0]] = name
        elif len(fits) == 1:
            problems.append(f"{name!r} and {places[fits[0]]!r} both match {class_names[fits[0]]}")
        elif fits:
            problems.append(f"{name!r} matches several: {listed(class_names[k] for k in fits)}")
        else:
            hint = nearest(name, class_names) if len(problems) < _SHOWN else ""  # slow
            problems.append(f"{name!r} has no match{hint and f' ({hint.strip()})'}")
    return list(places), problems


def are_numbers(names: Sequence[str]) -> bool:
    """Whether names are `"0"`, `"1"`, ... in order, as data without class names have them."""
    return list(names) == list(map(str, range(len(names))))


def find_names(data: Any) -> Sequence[str] | None:
    """Returns the `class_names` of data, or the `classes` of a torch data set, also in a loader.

    Keras's `ImageDataGenerator` has `class_indices`. Labels that torchvision transforms have no
    names, because only the function knows their classes.
    """
    while data is not None and getattr(data, "target_transform", None) is None:
        names = getattr(data, "class_indices", getattr(data, "classes", None))
        names = getattr(data, "class_names", names)
        if isinstance(names, list | tuple | dict) and all(isinstance(each, str) for each in names):
            return tuple(names)
        data = getattr(data, "dataset", next(iter(getattr(data, "datasets", ())), None))
    return None


def _nfc(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _fold(name: str) -> str:
    folded = unicodedata.normalize("NFD", name).replace("_", " ").casefold()
    return " ".join(_nfc(folded).split())


def check_thresholds(thresholds: Thresholds | None, num_classes: int) -> tuple[float, ...] | None:
    """Returns thresholds as models and files store them: one per class, or None.

    Raises:
        ConfigError: a threshold is not in [0, 1], or their number is not `num_classes`.
    """
    if thresholds is None:
        return None
    import numpy as np  # here, because the command line reads the lists without it

    array = np.asarray(thresholds)
    fits = array.shape in ((), (num_classes,)) and array.dtype.kind in "fiu" and num_classes
    if not fits or not ((array >= 0) & (array <= 1)).all():
        raise ConfigError(
            f"thresholds={shown(thresholds, quoted=False)}: expected a value from 0 to 1, or one "
            f"for each of num_classes={num_classes}."
        )
    return tuple(np.broadcast_to(array.astype("float64"), num_classes).tolist())


def top_labels(
    probabilities: "np.ndarray",
    class_names: Sequence[str] | None,
    top: int | None,
    thresholds: Sequence[float] | None = None,
) -> list[list[tuple[str, float]]]:
    """Returns the most probable labels of each image, most probable first.

    Args:
        probabilities: `(batch, num_classes)`.
        class_names: one name per class, or None to use the index of a class as its name.
        top: largest number of labels. None for 5, or with thresholds for all labels that reach
            them.
        thresholds: decision threshold of each class of a multi-label model. An image whose
            probabilities are all below has no label.

    Raises:
        ConfigError: a probability is NaN.
    """
    import numpy as np

    if np.isnan(probabilities).any():
        raise ConfigError(
            "The model predicts NaN as a probability: a weight or pixel is not finite, or too "
            "large for the dtype policy of the model, such as float16."
        )
    if top is None and thresholds is None:
        top = 5
    least = np.full(probabilities.shape[1], -np.inf) if thresholds is None else np.array(thresholds)
    order = np.argsort(-probabilities, axis=1, kind="stable")
    return [
        [
            (class_names[k] if class_names else str(k), float(row[k]))
            for k in indices[row[indices] >= least[indices]][:top]
        ]
        for row, indices in zip(probabilities, order, strict=True)
    ]


def class_index(
    target: int | str, class_names: Sequence[str] | None, num_classes: int, name: str = "target"
) -> int:
    """Finds a class by its index or label.

    A label is a whole label of the model, or one of the names in a label such as `"tench, Tinca
    tinca"`. A string of digits is an index if no label equals it.

    Args:
        target: the index or the label.
        class_names: one name per class, or None.
        num_classes: number of classes of the model.
        name: name of the argument in messages.

    Raises:
        ConfigError: the model has no such class, or several classes with that name.
    """
    if isinstance(target, str):
        class_names = class_names or ()
        matches = [k for k, label in enumerate(class_names) if label == target]
        matches = matches or [
            k for k, label in enumerate(class_names) if target in label.split(", ")
        ]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ConfigError(
                f"{name}={shown(target)} is the label of several classes. Give an index: "
                f"{', '.join(map(str, matches))}."
            )
        if not target.isdecimal() or len(target) >= 10:
            raise ConfigError(
                f"{name}={shown(target)}: the model has no "
                f"{'such label' if class_names else 'labels'}.{nearest(target, class_names)} "
                f"Or give an index from 0 to {num_classes - 1}."
            )
        target = int(target)
    if isinstance(target, bool) or not isinstance(target, numbers.Integral):
        raise ConfigError(f"{name}={shown(target)}: expected an index, a label or None.")
    if not 0 <= target < num_classes:
        raise ConfigError(
            f"{name}={shown(int(target))}: expected an index from 0 to {num_classes - 1}, because "
            f"the model has {num_classes} classes."
        )
    return int(target)
