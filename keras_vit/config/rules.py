"""Rules for the valid values of fields and arguments."""

import contextlib
import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

from keras_vit.errors import ConfigError, nearest, shown


@dataclasses.dataclass(frozen=True)
class Values:
    """The valid values of a field.

    Args:
        include: function that returns whether a value is valid.
        expected: the valid values in words.
        words: all valid values, if there are few.
    """

    include: Callable[[Any], Any]
    expected: str
    words: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """Raises `ConfigError` unless the value of the field `name` is one of these values."""
        with contextlib.suppress(TypeError):  # a comparison with a value of another type
            if self.include(value):
                return
        if not self.words:
            raise ConfigError(f"{name} must be {self.expected}, found {shown(value)}.")
        hint = nearest(value, self.words) if isinstance(value, str) else ""
        raise ConfigError(f"{name}={shown(value)} is not one of {self.expected}.{hint}")


def choice(*words: str | None) -> Values:
    """Returns a rule that accepts these words, which may include None."""
    return Values(
        lambda value: isinstance(value, str | None) and value in words,
        ", ".join(map(str, words)),
        tuple(word for word in words if word is not None),
    )


def is_int(value: Any) -> bool:
    """Whether a value is an int, but not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a finite int or float, but not a bool."""
    if is_int(value):
        return abs(value) < 10**300
    return isinstance(value, float) and math.isfinite(value)


def is_positive_int(value: Any) -> bool:
    """Whether a value is an int of at least 1."""
    return is_int(value) and value >= 1


def is_any_size(value: Any) -> bool:
    """Whether an image size is `(None, None)`, for images of any size."""
    return isinstance(value, (tuple, list)) and [side is None for side in value] == [True, True]


def pair(field: str, value: Any) -> tuple[int, int]:
    """Returns (rows, columns) from one positive int or a pair of them.

    Raises:
        ConfigError: the value is neither; the message names the field.
    """
    both = (value, value) if is_int(value) else value
    if not isinstance(both, (tuple, list)) or len(both) != 2 or not all(map(is_positive_int, both)):
        raise ConfigError(
            f"{field} must be a positive int or a pair of them (rows, columns), "
            f"found {shown(value)}."
        )
    return both[0], both[1]


POSITIVE = Values(is_positive_int, "a positive int")
COUNT = Values(lambda n: isinstance(n, numbers.Integral) and int(n) >= 1, "a positive int")
"""Counts of images and steps in calls, which may be NumPy integers."""
POSITIVE_OR_NONE = Values(
    lambda value: value is None or is_positive_int(value), "a positive int or None"
)
NUMBER = Values(is_number, "a number")
POSITIVE_NUMBER = Values(lambda value: is_number(value) and value > 0, "a positive number")
CLASSES = Values(lambda value: is_int(value) and value >= 0, "an int, 0 for features only")
SHARE = Values(lambda value: is_number(value) and 0 <= value < 1, "a number in [0, 1)")
BOOL = Values(lambda value: isinstance(value, bool), "a bool")
