"""Validation: the valid values of one field, and rules about several fields.

`enforce` applies rules in their order. A rule may rely on the rules before it: the rules of single
fields come first, so that a rule that compares two fields finds values of the right type.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from keras_vit.errors import ConfigError, nearest, shown


@dataclasses.dataclass(frozen=True)
class Rule:
    """One condition on the fields of a configuration.

    Args:
        fields: the names of the fields that the rule reads, separated by spaces.
        holds: called with the values of these fields, in that order; true for valid values.
        message: message of the error. `{hidden_size}` stands for the value of that field.
        words: the valid words for the field; the message then names the nearest.
    """

    fields: str
    holds: Callable[..., Any]
    message: str
    words: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Values:
    """The valid values of a field.

    Args:
        include: whether a value is one of them.
        expected: the valid values in words.
        words: all valid values, if they are few.
    """

    include: Callable[[Any], Any]
    expected: str
    words: tuple[str, ...] = ()

    def rule(self, field: str) -> Rule:
        """Returns the rule that a field has one of these values."""
        message = f"{field} must be {self.expected}, found {{{field}}}."
        if self.words:
            message = f"{field}={{{field}}} is not one of {self.expected}."
        return Rule(field, self.include, message, self.words)


def choice(*words: str | None) -> Values:
    """Returns a few words as the valid values, and None if it is among them."""
    return Values(
        lambda value: isinstance(value, str | None) and value in words,
        ", ".join(map(str, words)),
        tuple(word for word in words if word is not None),
    )


def enforce(values: Any, rules: tuple[Rule, ...], prefix: str = "") -> None:
    """Applies every rule to the attributes of an object.

    Args:
        values: the object; a field may also be the name of a property.
        rules: applied in order.
        prefix: prefix of field names in messages, such as `"numerics."`.

    Raises:
        ConfigError: a rule does not hold; the message is that of the first such rule.
    """
    for rule in rules:
        read = {name: getattr(values, name) for name in rule.fields.split()}
        if not rule.holds(*read.values()):
            message = rule.message
            for name, value in read.items():
                message = message.replace(f"{{{name}}}", shown(value))
            words = [value for value in read.values() if isinstance(value, str) and rule.words]
            raise ConfigError(prefix + message + "".join(nearest(w, rule.words) for w in words))


def is_int(value: Any) -> bool:
    """Whether a value is an int and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a finite int or float and no bool."""
    if is_int(value):
        return abs(value) < 10**300
    return isinstance(value, float) and math.isfinite(value)


def is_positive_int(value: Any) -> bool:
    """Whether a value is an int from 1 on."""
    return is_int(value) and value >= 1


def pair(field: str, value: Any) -> tuple[int, int]:
    """Returns (rows, columns) from one positive int or a pair of them.

    Raises:
        ConfigError: names the field.
    """
    both = (value, value) if is_int(value) else value
    if not isinstance(both, (tuple, list)) or len(both) != 2 or not all(map(is_positive_int, both)):
        raise ConfigError(
            f"{field} must be a positive int or a pair of them (rows, columns), "
            f"found {shown(value)}."
        )
    return both[0], both[1]


POSITIVE = Values(is_positive_int, "a positive int")
POSITIVE_OR_NONE = Values(
    lambda value: value is None or is_positive_int(value), "a positive int or None"
)
NUMBER = Values(is_number, "a number")
POSITIVE_NUMBER = Values(lambda value: is_number(value) and value > 0, "a positive number")
SHARE = Values(lambda value: is_number(value) and 0 <= value < 1, "a number in [0, 1)")
BOOL = Values(lambda value: isinstance(value, bool), "a bool")
BOOL_OR_NONE = Values(lambda value: isinstance(value, bool | None), "a bool or None")
