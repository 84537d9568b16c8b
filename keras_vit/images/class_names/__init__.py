"""Names of classes, and the probability from which an image has a label.

The names of ImageNet's classes ship with the package.
"""

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
"""The least probability with which an image has a label: one for all classes, or one per class."""

NAMED = {"imagenet1k": 1000, "imagenet21k": 21843}
"""Lists that ship with the package, and their numbers of names.

Their orders are those of ILSVRC 2012 and of Google's heads for ImageNet-21k.
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
            f"class_names={class_names!r} is no shipped list.{nearest(class_names, NAMED)} "
            f"There are {', '.join(NAMED)}; or give a sequence of names."
        )
    return _read(class_names)


def shorten(class_names: ClassNames | None, num_classes: int) -> str | tuple[str, ...] | None:
    """Returns labels in the form that models and files keep: the name of a shipped list, or names.

    Args:
        class_names: the name of a shipped list, one name per class, or None.
        num_classes: number of classes that they must name.

    Raises:
        ConfigError: the name of the list is unknown, a label is no string, or the number of
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
    """Returns the place among `class_names` of each name of a class of the data.

    The places are those of `pair_names`. If it finds none, names that are all numbers from `"0"`
    on, in any order, stand for the places of these numbers.

    Args:
        names: class names of the data; they may be fewer than `class_names`.
        class_names: one name per class, such as those of a model.
        title: beginning of the message.

    Raises:
        ConfigError: a name has no place, or several; the message lists what differs on both sides.

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
            f"{title}{len(problems)} of the data's {len(names)} classes do not fit the "
            f"{len(class_names)} class_names: {'; '.join(problems[:_SHOWN])}. Not in the data: "
            f"{listed(rest)}. Rename the classes, or give the data's names as class_names. A model "
            f"takes other classes {fix}."
        )
    return places


def pair_names(names: Sequence[str], class_names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Returns the place among `class_names` of each name, and a line for each name without one.

    A name has the place of its equal; or else of a name that differs in capitals, underscores or
    Unicode's spelling alone; or else of a name that has it between commas (`"tench"` in `"tench,
    Tinca tinca"`). Sorted WordNet ids of all classes of ImageNet have the order of its heads.
    """
    are_ids = len(names) in NAMED.values() and all(map(_WORDNET_ID.fullmatch, names))
    is_sorted = are_ids and len(names) == len(class_names) and list(names) == sorted(names)
    if is_sorted or list(names) == list(class_names):
        return list(range(len(names))), []
    table: dict[tuple[int, str], list[int]] = collections.defaultdict(list)
    for k, label in enumerate(class_names):
        for key in {
            (0, _nfc(label)),
            (1, _fold(label)),
            *((2, _fold(p)) for p in label.split(",")),
        }:
            table[key].append(k)
    places, problems = dict[int, str](), list[str]()
    for name in names:
        keys = (0, _nfc(name)), (1, _fold(name)), (2, _fold(name))
        fits = next((table[key] for key in keys if key in table), [])
        if len(fits) == 1 and fits[0] not in places:
            places[fits[0]] = name
        elif len(fits) == 1:
            problems.append(f"{name!r} and {places[fits[0]]!r} fit {class_names[fits[0]]}")
        elif fits:
            problems.append(f"{name!r} fits {listed(class_names[k] for k in fits)}, not one alone")
        else:
            hint = nearest(name, class_names) if len(problems) < _SHOWN else ""  # takes its time
            problems.append(f"{name!r} fits none{hint and f' ({hint.strip()})'}")
    return list(places), problems


def are_numbers(names: Sequence[str]) -> bool:
    """Whether names are `"0"`, `"1"`, ... in order, as data without class names have them."""
    return list(names) == list(map(str, range(len(names))))


def find_names(data: Any) -> Sequence[str] | None:
    """Returns the `class_names` of data, or the `classes` of a torch data set, also in a loader.

    Keras's `ImageDataGenerator` has `class_indices`. Labels that torchvision transforms have no
    names: only the function knows which classes they are.
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
    """Returns thresholds in the form that models and files keep: one per class, or None.

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
            f"thresholds={shown(thresholds, quoted=False)}: expected a number from 0 to 1, or one "
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
        top: number of labels; all labels if there are fewer. None for 5, and with thresholds for
            all labels that reach them.
        thresholds: least probability of each class, for a multi-label model. An image without
            a class that reaches it has no label.

    Raises:
        ConfigError: a probability is NaN.
    """
    import numpy as np

    if np.isnan(probabilities).any():
        raise ConfigError(
            "The model gives NaN as a probability: a weight or pixel is not finite, or too large "
            "for the dtype policy of the model, such as float16."
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
    """Returns the index of a class that is given by index or label.

    A label is a label of the model, or one of the names in a label such as `"tench, Tinca tinca"`.
    A string of digits is an index if no label equals it.

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
                f"{name}={shown(target)} names the classes {', '.join(map(str, matches))}. "
                "Give one of these numbers."
            )
        if not target.isdecimal() or len(target) >= 10:
            raise ConfigError(
                f"{name}={shown(target)} is no label of the model"
                f"{'' if class_names else ', which has none'}.{nearest(target, class_names)} "
                f"An index from 0 to {num_classes - 1} names a class too."
            )
        target = int(target)
    if isinstance(target, bool) or not isinstance(target, numbers.Integral):
        raise ConfigError(f"{name}={shown(target)}: expected an index, a label or None.")
    if not 0 <= target < num_classes:
        raise ConfigError(
            f"{name}={shown(int(target))} is no class: the model has {num_classes}, "
            f"from 0 to {num_classes - 1}."
        )
    return int(target)
