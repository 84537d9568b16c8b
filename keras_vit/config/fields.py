"""Declaration of fields: default, valid values, and the name of the part that a library may lack.

A frozen dataclass that inherits `Fields` declares each of its fields once, by its type and, for
more, by `field`. Validation and the switches (`list_switches`) derive from that.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from keras_vit.config.foreign_words import answer_to
from keras_vit.config.rules import (
    BOOL,
    BOOL_OR_NONE,
    NUMBER,
    POSITIVE,
    POSITIVE_OR_NONE,
    Values,
)
from keras_vit.errors import ConfigError, nearest, shown

VALUES_OF_TYPES: dict[Any, Values] = {
    bool: BOOL,
    int: POSITIVE,
    float: NUMBER,
    bool | None: BOOL_OR_NONE,
    int | None: POSITIVE_OR_NONE,
}
"""The valid values of a field that declares none, by its type."""


def field(
    default: Any,
    values: Values | None = None,
    lacking: str | Mapping[str, str] = "",
    plain: tuple[Any, ...] = (),
) -> Any:
    """Returns a field of a dataclass.

    Args:
        default: value of a field that is left out.
        values: the valid values; None for those of the type.
        lacking: for a switch, a part that other families add to the paper's model: its name in
            the message about a library that lacks it. A dict names a part for single values.
        plain: the values that stand for a model without the part; empty: the default.
    """
    declaration = {"values": values, "lacking": lacking, "plain": plain or (default,)}
    return dataclasses.field(default=default, metadata=declaration)


@dataclasses.dataclass(frozen=True)
class Switch:
    """A difference between a model and the paper's, which a library may lack.

    Args:
        field: the field of the configuration.
        words: name of the part, for messages.
        plain: the values of the field for a model without the part.
    """

    field: str
    words: str
    plain: tuple[Any, ...]


def list_switches(cls: Any) -> dict[str, Switch]:
    """Returns the switches that a dataclass declares, by the name of the field or of its value."""
    switches: dict[str, Switch] = {}
    for own in dataclasses.fields(cls):
        lacking = own.metadata.get("lacking")
        if isinstance(lacking, Mapping):
            every = own.metadata["values"].words
            for value, words in lacking.items():
                others = tuple(other for other in every if other != value)
                switches[value] = Switch(own.name, words, others)
        elif lacking:
            switches[own.name] = Switch(own.name, lacking, own.metadata["plain"])
    return switches


def known_fields(cls: Any, fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the fields as a dict.

    Raises:
        ConfigError: the dataclass has no field of such a name. If the name is another library's
            word, the message names the argument that does the same in keras_vit, else the field
            with the nearest name.
    """
    names = [own.name for own in dataclasses.fields(cls)]
    for name in fields:
        if name not in names:
            hint = "" if prefix else answer_to(name)
            raise ConfigError(
                f"Unknown field {prefix}{shown(name, quoted=False)}."
                f"{hint or nearest(str(name), names)} "
                f"{cls.__name__} has {', '.join(names)}."
            )
    return dict(fields)


class Fields:
    """Base of the frozen dataclasses of a configuration: valid fields, to and from JSON types."""

    _prefix: ClassVar[str] = ""
    """Prefix of the names of fields in messages, such as `"rope."`."""

    def __post_init__(self) -> None:
        self._validate()

    def _validate(self) -> None:
        for own in dataclasses.fields(self):  # type: ignore[arg-type]
            value, kind = getattr(self, own.name), own.type
            if values := own.metadata.get("values") or VALUES_OF_TYPES.get(kind):
                values.check(self._prefix + own.name, value)
            if kind is float:
                self._set(own.name, float(value))
        for fault in self._faults():
            raise ConfigError(self._prefix + fault)

    def _faults(self) -> Iterable[str]:
        """Returns a sentence for each broken rule about several fields, or about their details.

        The sentences are made one by one: a rule may rely on the rules before it, and on fields
        with valid values.
        """
        return ()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain JSON types; `from_dict` is its inverse."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        for name, value in values.items():
            if isinstance(value, Fields):
                values[name] = value.to_dict()
            elif isinstance(value, tuple):
                values[name] = list(value)
        return values

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Builds from `to_dict()`'s output.

        Raises:
            ConfigError: a field is unknown, missing or invalid.
        """
        values = known_fields(cls, fields, cls._prefix)
        required = [
            f.name
            for f in dataclasses.fields(cls)  # type: ignore[arg-type]
            if f.default is f.default_factory is dataclasses.MISSING
        ]
        if absent := [name for name in required if name not in values]:
            raise ConfigError(f"A {cls.__name__} needs {', '.join(absent)}.")
        return cls(**values)
