"""Parses conditions on a configuration, such as `"pool.is_map block.norm=layer"`.

The lexicon uses conditions to state which models have a weight. A family uses them to state which
models have a name in its files, an object of JSON, or a feature that its library lacks. Terms
separated by blanks must all hold, ` or ` separates alternatives, and `""` holds for every model. A
term names a field or property of `ViTConfig` or of a part; its value is None if the part is absent:

    tokens.mask           the field has a true value
    tokens.mask!          the field has no true value: it is False, 0 or None
    pool.kind=gap|map     the field has one of these values
    pool.kind!=gap|map    the field has another value
    grid!=source_grid     the field does not have the value of the other field
    patch_size!=square    rows and columns of the pair differ
"""

import ast
import contextlib
import dataclasses
import functools
import typing
from typing import Any

from keras_vit.config.fields import VALUES_OF_TYPES, part_of
from keras_vit.config.rules import Values
from keras_vit.config.vit import SWITCHES, ViTConfig
from keras_vit.errors import ConfigError, nearest


@dataclasses.dataclass(frozen=True)
class Place:
    """A field or property of `ViTConfig` or of a part: `"pool.kind"`."""

    path: str

    def read(self, config: ViTConfig) -> Any:
        """Returns the value in a configuration; None for a field of an absent part."""
        value: Any = config
        for name in self.path.split("."):
            value = getattr(value, name, None)
        return value

    def declaration(self) -> tuple[Any, Values | None]:
        """Returns the type, and the valid values if they are declared.

        Raises:
            ValueError: the field or property does not exist.
        """
        part, _, name = self.path.rpartition(".")
        parts = {own.name: part_of(own) for own in dataclasses.fields(ViTConfig)}
        owner = parts.get(part) if part else ViTConfig
        for own in dataclasses.fields(owner) if owner else ():
            if own.name == name:
                return own.type, own.metadata.get("values") or VALUES_OF_TYPES.get(own.type)
        found = getattr(owner, name, None)
        if not isinstance(found, property):
            names = [own for own in dir(owner) if not callable(getattr(owner, own, None))]
            raise ValueError(f"{self.path} is not a field of ViTConfig.{nearest(name, names)}")
        return typing.get_type_hints(found.fget)["return"], None


SQUARE = Place("square")
"""The word for pairs (rows, columns) with two equal values."""


@dataclasses.dataclass(frozen=True)
class Term:
    """One term of a condition.

    Args:
        field: path of a `Place`.
        values: the values that meet the term, or the places of such values; empty for every true
            value.
        is_met_by_others: whether the term is negated: all values but these meet it.
    """

    field: str
    values: tuple[Any, ...] = ()
    is_met_by_others: bool = False

    def holds(self, config: ViTConfig) -> bool:
        """Whether a configuration meets the term."""
        own = Place(self.field).read(config)
        holds = any(_is(own, value, config) for value in self.values) if self.values else bool(own)
        return holds is not self.is_met_by_others

    @property
    def value(self) -> Any:
        """The value of a term with a single value, else None."""
        return self.values[0] if len(self.values) == 1 else None

    @property
    def part(self) -> str:
        """Name of the feature that the term requires, if the paper's model lacks it."""
        values, part = "|".join(map(str, self.values)), self.field.rpartition(".")[0]
        names = (f"{self.field}={values}", self.field, part)
        switch = next((SWITCHES[name] for name in names if name in SWITCHES), None)
        if switch is None:
            return ""
        has_plain = any(value in switch.plain for value in self.values or (True,))
        return switch.words if has_plain is self.is_met_by_others else ""


def _is(own: Any, value: Any, config: ViTConfig) -> bool:
    if value == SQUARE:
        return own is not None and own[0] == own[1]
    return bool(own == (value.read(config) if isinstance(value, Place) else value))


@dataclasses.dataclass(frozen=True)
class Condition:
    """A parsed condition: a list of alternatives, each a list of terms that must all hold."""

    alternatives: tuple[tuple[Term, ...], ...]

    def holds(self, config: ViTConfig) -> bool:
        """Whether a configuration meets the condition."""
        return any(all(term.holds(config) for term in terms) for terms in self.alternatives)


@functools.cache
def parse(text: str) -> Condition:
    """Returns the condition that a text states.

    Raises:
        ValueError: the text names an unknown field, or a value that the field cannot have.
    """
    return Condition(tuple(tuple(map(_parse_term, terms.split())) for terms in text.split(" or ")))


def _parse_term(text: str) -> Term:
    name, equals, values = text.partition("=")
    field, is_met_by_others = name.removesuffix("!"), name.endswith("!")
    Place(field).declaration()
    return Term(
        field,
        tuple(_parse_value(field, value) for value in values.split("|")) if equals else (),
        is_met_by_others,
    )


def _parse_value(field: str, text: str) -> Any:
    """Returns a value of a field: a literal of Python, a word, or a `Place`."""
    kind, valid = Place(field).declaration()
    value: Any = text
    with contextlib.suppress(ValueError, SyntaxError):
        value = ast.literal_eval(text)
    if valid is not None:
        with contextlib.suppress(ConfigError):
            valid.check(field, value)
            return value
    elif not isinstance(value, str):
        return value
    if text == SQUARE.path and tuple[int, int] in (kind, *typing.get_args(kind)):
        return SQUARE
    try:
        Place(text).declaration()
    except ValueError as error:
        raise ValueError(f"{field} cannot be {text}, which is not a field either.") from error
    return Place(text)


def state_others(field: str, *values: Any) -> str:
    """Returns the condition that a field has another value than these."""
    return f"{field}!={'|'.join(str(value).replace(' ', '') for value in values)}"
