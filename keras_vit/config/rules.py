"""Validation rules as rows: the fields that a rule reads, its condition, and its message.

A dataclass lists its rules in one table and `enforce` runs them in that order. A rule may
rely on the rules above it: a row that compares two fields stands below the rows that check
the type of each.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from keras_vit.config.foreign_words import answer_to
from keras_vit.errors import ConfigError, nearest, shown


@dataclasses.dataclass(frozen=True)
class Rule:
    """One condition on the fields of a configuration.

    Args:
        fields: the names of the fields that the rule reads, separated by spaces.
        holds: called with the values of these fields, in that order; true for valid values.
        message: message of the error. `{hidden_size}` stands for the value of that field.
        known: the valid words for the field; the message then names the nearest.
    """

    fields: str
    holds: Callable[..., Any]
    message: str
    known: tuple[str, ...] = ()


def each(fields: str, holds: Callable[[Any], Any], expected: str) -> tuple[Rule, ...]:
    """Returns one rule for each of several fields with the same condition."""
    return tuple(
        Rule(field, holds, f"{field} must be {expected}, found {{{field}}}.")
        for field in fields.split()
    )


def choice(field: str, known: tuple[str, ...]) -> Rule:
    """Returns the rule that a field is one of the known words."""
    return Rule(
        field,
        lambda value: isinstance(value, str) and value in known,
        f"{field}={{{field}}} is not one of {', '.join(known)}.",
        known,
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
        found = {name: getattr(values, name) for name in rule.fields.split()}
        if not rule.holds(*found.values()):
            message = rule.message
            for name, value in found.items():
                message = message.replace(f"{{{name}}}", shown(value))
            words = [value for value in found.values() if isinstance(value, str) and rule.known]
            raise ConfigError(prefix + message + "".join(nearest(w, rule.known) for w in words))


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


def is_share(value: Any) -> bool:
    """Whether a value is a number in [0, 1)."""
    return is_number(value) and 0 <= value < 1


def is_bool(value: Any) -> bool:
    """Whether a value is True or False."""
    return isinstance(value, bool)


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


def known_fields(cls: Any, fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the fields as a dict.

    Raises:
        ConfigError: the dataclass has no field of such a name. If the name is another library's
            word, the message names the argument that does the same in keras_vit, else the field
            with the nearest name.
    """
    names = [field.name for field in dataclasses.fields(cls)]
    for name in fields:
        if name not in names:
            hint = "" if prefix else answer_to(name)
            raise ConfigError(
                f"Unknown field {prefix}{shown(name, quoted=False)}."
                f"{hint or nearest(str(name), names)} "
                f"{cls.__name__} has {', '.join(names)}."
            )
    return dict(fields)
