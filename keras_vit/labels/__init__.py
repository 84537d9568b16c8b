"""Names of classes; lists of the names of ImageNet's classes are shipped."""

import functools
from collections.abc import Sequence
from importlib import resources

import numpy as np

from keras_vit.errors import ConfigError, nearest

__all__ = ["NAMED", "Labels", "checked", "compact", "named", "names_of", "top_labels"]

Labels = str | Sequence[str]
"""A name of a shipped list, or one name per class."""

NAMED = {"imagenet1k": 1000, "imagenet21k": 21843}
"""Shipped lists and their lengths, in the order of ILSVRC 2012 and of Google's 21k heads."""


@functools.cache
def named(word: str) -> tuple[str, ...]:
    """Returns a shipped list of names, one per class in the order of the heads.

    A name lists the lemmas of a WordNet synset: `"tench, Tinca tinca"`. Two classes may
    share a name (ImageNet-1k has two cranes).

    Args:
        word: `"imagenet1k"` (1,000 names) or `"imagenet21k"` (21,843).

    Raises:
        ConfigError: no shipped list has this name.

    >>> from keras_vit import labels
    >>> labels.named("imagenet1k")[0]
    'tench, Tinca tinca'
    """
    if word not in NAMED:
        raise ConfigError(
            f"labels={word!r} is no shipped list.{nearest(word, NAMED)} There are "
            f"{', '.join(NAMED)}; or give a sequence of names."
        )
    text = resources.files(__name__).joinpath(f"{word}.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def checked(labels: Labels | None, num_classes: int) -> str | tuple[str, ...] | None:
    """Returns labels in the form that a model keeps: the name of a shipped list, or a tuple.

    Raises:
        ConfigError: the name of the list is unknown, a label is no string, or the number of
            labels is not `num_classes`.
    """
    if labels is None:
        return None
    if isinstance(labels, str):
        count = NAMED[labels] if labels in NAMED else len(named(labels))
    else:
        labels = tuple(labels)
        count = len(labels)
        if odd := [label for label in labels if not isinstance(label, str)]:
            raise ConfigError(f"labels holds {odd[0]!r}, expected {num_classes} strings.")
    if count != num_classes:
        raise ConfigError(
            f"{count} labels, expected {num_classes} strings, one for each of "
            f"num_classes={num_classes}."
        )
    return labels


def compact(labels: Labels | None) -> str | list[str] | None:
    """Returns labels in the form of JSON: the name of a shipped list, or a list of names."""
    if labels is None or isinstance(labels, str):
        return labels
    for word, count in NAMED.items():
        if len(labels) == count and tuple(labels) == named(word):
            return word
    return list(labels)


def names_of(labels: Labels | None) -> tuple[str, ...] | None:
    """Returns one name per class, from the name of a shipped list or from names."""
    if labels is None:
        return None
    return named(labels) if isinstance(labels, str) else tuple(labels)


def top_labels(
    probabilities: np.ndarray, labels: Sequence[str] | None, top: int
) -> list[list[tuple[str, float]]]:
    """Returns the `top` most probable labels of each image, most probable first.

    Args:
        probabilities: `(batch, num_classes)`.
        labels: one name per class, or None to use the index of a class as its name.
        top: number of labels; all labels if there are fewer.

    Raises:
        ConfigError: a probability is NaN.
    """
    if np.isnan(probabilities).any():
        raise ConfigError(
            "The model gives NaN as a probability: a weight or pixel is not finite, or too large "
            "for the dtype policy of the model, such as float16."
        )
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    return [
        [(labels[k] if labels else str(k), float(row[k])) for k in indices]
        for row, indices in zip(probabilities, order, strict=True)
    ]
