"""Declares the fields of configurations: default, valid values, and the feature they switch on.

A frozen dataclass that inherits from `Fields` declares each field once, by its type and, if it
needs more, by `field`. Validation and the switches (`list_switches`) derive from that.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, get_args

from keras_vit.config.foreign_words import answer_to
from keras_vit.config.rules import (
    BOOL,
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
    int | None: POSITIVE_OR_NONE,
}
"""The default rule for valid values, by the type of a field."""


def field(
    default: Any,
    values: Values | None = None,
    lacking: str | Mapping[str, str] = "",
    plain: tuple[Any, ...] = (),
) -> Any:
    """Declares a field of a configuration.

    Args:
        default: the default value.
        values: the valid values; None for those of the type.
        lacking: name of the feature that the field switches on, for the message about a library
            that lacks it; "" for a field that is not a switch. A dict names a feature per value,
            or for several: `"mlp|both"`.
        plain: the values of a model without the feature; empty: the default.
    """
    declaration = {"values": values, "lacking": lacking, "plain": plain or (default,)}
    return dataclasses.field(default=default, metadata=declaration)


@dataclasses.dataclass(frozen=True)
class Switch:
    """A feature that the paper's model does not have, and that a library may lack.

    Args:
        field: path of the field of the configuration, such as `"pool.kind"`.
        words: name of the feature, for messages.
        plain: the values of the field for a model without the feature.
    """

    field: str
    words: str
    plain: tuple[Any, ...]


def list_switches(cls: Any, prefix: str = "") -> dict[str, Switch]:
    """Returns the switches of a dataclass and its parts, by `"field"` or `"field=value"`."""
    switches: dict[str, Switch] = {}
    for own in dataclasses.fields(cls):
        path, lacking = prefix + own.name, own.metadata.get("lacking")
        if isinstance(lacking, Mapping):
            every = own.metadata["values"].words
            plain = (None,) if own.metadata["values"].include(None) else ()
            for values, words in lacking.items():
                others = tuple(word for word in every if word not in values.split("|"))
                switches[f"{path}={values}"] = Switch(path, words, (*plain, *others))
        elif lacking:
            switches[path] = Switch(path, lacking, own.metadata["plain"])
        if part := part_of(own):
            switches |= list_switches(part, f"{path}.")
    return switches


def part_of(own: "dataclasses.Field[Any]") -> Any:
    """Returns the dataclass of a field that holds a part, else None."""
    kinds = [kind for kind in (own.type, *get_args(own.type)) if isinstance(kind, type)]
    return next((kind for kind in kinds if issubclass(kind, Fields)), None)


def flatten(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens nested fields: `{"pool": {"kind": "gap"}}` becomes `{"pool.kind": "gap"}`.

    A part that is None stays None.
    """
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        inner = value.to_dict() if isinstance(value, Fields) else value
        if isinstance(inner, Mapping) and inner:
            flat |= {f"{name}.{path}": each for path, each in flatten(inner).items()}
        else:
            flat[name] = value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turns fields by path into nested dicts; `flatten` is its inverse."""
    fields: dict[str, Any] = {}
    for path, value in flat.items():
        part, _, name = path.rpartition(".")
        if part:
            if not isinstance(fields.get(part), dict):
                fields[part] = {}
            fields[part][name] = value
        elif not (value is None and path in fields):
            fields[path] = value
    return fields


def known_fields(cls: Any, fields: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """Checks the names of fields, and returns the fields as a dict.

    Args:
        cls: the dataclass.
        fields: the fields by name.
        **others: further arguments of the caller that are dicts, each with the class of its keys.

    Raises:
        ConfigError: the dataclass has no such field. If the name is a field of a part, a key of
            another argument, or another library's name, the message gives the equivalent argument;
            otherwise it gives the field with the nearest name.
    """
    names = [own.name for own in dataclasses.fields(cls)]
    parts = {own.name: part for own in dataclasses.fields(cls) if (part := part_of(own))}
    for name in fields:
        if name not in names:
            hint = "" if cls._prefix else answer_to(name)
            homes = [k for k, kind in {**parts, **others}.items() if name in kind.__annotations__]
            if homes:
                hint = f" Give {' or '.join(f'{home}={{{name!r}: ...}}' for home in homes)}."
            raise ConfigError(
                f"Unknown field {cls._prefix}{shown(name, quoted=False)}."
                f"{hint or nearest(str(name), names)} "
                f"{cls.__name__} has {', '.join(names)}."
            )
    return dict(fields)


class Fields:
    """Base class of the frozen dataclasses of a configuration: validation, conversion to JSON."""

    _prefix: ClassVar[str] = ""
    """Prefix of the names of fields in messages; of a part, its name: `"block."`."""

    def __init_subclass__(cls) -> None:
        if cls.__base__ is Fields and "_prefix" not in vars(cls):
            cls._prefix = f"{cls.__name__.lower()}."

    def __post_init__(self) -> None:
        self._read_parts()
        self._validate()

    def _read_parts(self) -> None:
        """Turns dicts into the parts that they describe."""
        for own in dataclasses.fields(self):  # type: ignore[arg-type]
            part, value = part_of(own), getattr(self, own.name)
            if part is not None and not (value is None and own.default is None):
                self._set(own.name, part.read(value))

    def _validate(self) -> None:
        for own in dataclasses.fields(self):  # type: ignore[arg-type]
            value, kind = getattr(self, own.name), own.type
            if values := own.metadata.get("values") or VALUES_OF_TYPES.get(kind):
                values.check(self._prefix + own.name, value)
            if kind is float or (kind == float | None and value is not None):
                self._set(own.name, float(value))
        for fault in self._faults():
            raise ConfigError(self._prefix + fault)

    def _faults(self) -> Iterable[str]:
        """Returns a sentence for each broken rule about several fields.

        Sentences are computed one by one: a rule may assume that the rules before it hold, and
        that each field has a valid value.
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
    def read(cls, value: Any) -> Self:
        """Returns the part that an argument gives, as an instance or as a dict of fields.

        Raises:
            ConfigError: the argument is neither, or a field is invalid.
        """
        if isinstance(value, Mapping):
            return cls.from_dict(value)
        if not isinstance(value, cls):
            name = cls._prefix.removesuffix(".")
            raise ConfigError(
                f"{name} must be a {cls.__name__} or a dict of its fields, found {shown(value)}."
            )
        return value

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Builds an instance from the output of `to_dict()`.

        Raises:
            ConfigError: a field is unknown, missing or invalid.
        """
        values = known_fields(cls, fields)
        required = [
            f.name
            for f in dataclasses.fields(cls)  # type: ignore[arg-type]
            if f.default is f.default_factory is dataclasses.MISSING
        ]
        if absent := [name for name in required if name not in values]:
            raise ConfigError(f"A {cls.__name__} needs {', '.join(absent)}.")
        return cls(**values)

    def replace(self, **fields: Any) -> Self:
        """Returns a copy with changed fields; a dict changes only the fields of a part it names.

        Raises:
            ConfigError: a field is unknown or invalid.
        """
        fields = known_fields(type(self), fields)
        for name, value in fields.items():
            own = getattr(self, name)
            if isinstance(own, Fields) and isinstance(value, Mapping):
                fields[name] = own.replace(**value)
        return dataclasses.replace(self, **fields)  # type: ignore[type-var]
