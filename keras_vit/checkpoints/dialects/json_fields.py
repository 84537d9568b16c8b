"""Tables of the JSON beside weights, such as `config.json`: the same rows read and write it.

A row states a key of the library, the corresponding field of `ViTConfig`, and the conversion
of their values. `"block.epsilon"` is the field of a part, `"class_names"` are the names of the
classes, `"task"` is what the outputs say. There are two kinds of rows: `JsonField` (one key, one
field) and `JsonFields` (several keys that state fields together); `constant` is a key for which
keras_vit accepts a single meaning, and `note` one that is written for the library and not read by
keras_vit.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from keras_vit.config import Task, ViTConfig
from keras_vit.config.weights.conditions import Place, parse
from keras_vit.errors import listed, shown

ClassNames = str | tuple[str, ...] | None
Json = Mapping[str, Any]

LEFT_OUT: Any = object()
"""A default: if the key is absent, the row states no field."""
REQUIRED: Any = object()
"""A default: the library always writes the key, so that its absence is an error."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """The facts from which JSON is written.

    Args:
        config: configuration of the model.
        class_names: one name per class, or None.
        task: what the outputs of the model say, see `keras_vit.config.Prediction`.
    """

    config: ViTConfig
    class_names: tuple[str, ...] | None = None
    task: Task = "single_label"

    def get(self, field: str) -> Any:
        """Returns the value of a field, by its path in a row."""
        if field in ("class_names", "task"):
            return getattr(self, field)
        return Place(field).read(self.config)


@dataclasses.dataclass(frozen=True)
class Codec:
    """The conversion of a value between keras_vit and a library.

    Args:
        write: from keras_vit's value to the library's.
        read: from the library's value to keras_vit's; raises `ValueError`, whose message
            states the expected values.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


SAME = Codec(lambda value: value, lambda value: value)


def one_of(words: Mapping[Any, Any]) -> Codec:
    """Returns the codec of a table from the library's words to values of keras_vit.

    If several words have one meaning, the first word is written.
    """
    written: dict[Any, Any] = {}
    for word, value in words.items():
        written.setdefault(value, word)

    def read(word: Any) -> Any:
        if not isinstance(word, (str, int, bool, type(None))) or word not in words:
            raise ValueError(f"expected one of {', '.join(map(str, words))}")
        return words[word]

    return Codec(written.__getitem__, read)


HAS_POSITIONS = one_of({True: "learned", False: "none"})
"""The codec of a key that states whether there is an array of positions."""


def _square_as_int(sides: Any) -> Any:
    rows, columns = sides
    return rows if rows == columns else [rows, columns]


SIDES = Codec(_square_as_int, SAME.read)
"""The codec of (rows, columns): one int if they are equal, else a list."""


@dataclasses.dataclass(frozen=True)
class JsonField:
    """One key and the field that it states.

    Args:
        key: the library's key.
        field: path of the field in `ViTConfig`, such as `"block.qk_norm"`; "" for a key that
            keras_vit writes and does not read.
        codec: conversion of the value.
        default: the library's value for an absent key, or `LEFT_OUT` or `REQUIRED`.
        write: returns the library's value instead of `codec.write`, if the value depends on
            more than the field; `LEFT_OUT` leaves the key out.
    """

    key: str
    field: str = ""
    codec: Codec = SAME
    default: Any = LEFT_OUT
    write: Callable[[Facts], Any] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the row."""
        return (self.key,)

    @property
    def fields(self) -> tuple[str, ...]:
        """Paths of the fields in `ViTConfig` that the row states."""
        return (self.field,) if self.field else ()

    def read_from(self, content: Json) -> dict[str, Any]:
        """Returns the fields that an object of the library states."""
        value = content.get(self.key, self.default)
        if value is LEFT_OUT or not self.field:
            return {}
        if value is REQUIRED:
            raise LookupError(f"has no {self.key}")
        with naming(self.key, value):
            return {self.field: self.codec.read(value)}

    def write_for(self, facts: Facts) -> dict[str, Any]:
        """Returns the library's key and its value for a model."""
        value = self.write(facts) if self.write else self.codec.write(facts.get(self.field))
        return {} if value is LEFT_OUT else {self.key: value}


@dataclasses.dataclass(frozen=True)
class JsonFields:
    """Several keys that state fields together.

    Args:
        keys: the library's keys; messages about unreadable values name the first.
        fields: paths of the fields in `ViTConfig`.
        read: from the library's object to these fields.
        write: from the configuration to the library's keys; a key that is left out has the
            library's default. A family that is only read needs none.
        is_optional: whether an object without the first key states none of the fields.
    """

    keys: tuple[str, ...]
    fields: tuple[str, ...]
    read: Callable[[Json], Mapping[str, Any]]
    write: Callable[[ViTConfig], Mapping[str, Any]] = lambda config: {}
    is_optional: bool = False

    def read_from(self, content: Json) -> dict[str, Any]:
        """Returns the fields that an object of the library states."""
        if self.is_optional and self.keys[0] not in content:
            return {}
        with naming(self.keys[0], content.get(self.keys[0])):
            return dict(self.read(content))

    def write_for(self, facts: Facts) -> dict[str, Any]:
        """Returns the library's keys and their values for a model."""
        return dict(self.write(facts.config))


Row = JsonField | JsonFields


def note(key: str, value: Any) -> JsonField:
    """Returns the row of a key that the library reads and keras_vit does not read.

    Args:
        key: the library's key.
        value: the value, or a function that returns it for a model; `LEFT_OUT` leaves the key out.
    """
    return JsonField(key, write=value if callable(value) else lambda facts: value)


def constant(key: str, value: Any) -> JsonFields:
    """Returns the row of a key with one value: the only one that keras_vit supports."""

    def read(content: Json) -> dict[str, Any]:
        if content.get(key, value) != value:
            raise ValueError(f"expected {value!r}")
        return {}

    return JsonFields((key,), (), read, lambda config: {key: value})


def shared_key(key: str, *fields: str, default: Any = LEFT_OUT) -> Row:
    """Returns the row of a key that states several fields, which all have its value."""
    return JsonFields(
        (key,),
        fields,
        lambda content: dict.fromkeys(fields, content.get(key, default)),
        lambda config: {key: Place(fields[0]).read(config)},
        is_optional=default is LEFT_OUT,
    )


def number(content: Json, key: str, default: Any = LEFT_OUT) -> Any:
    """Returns a number of an object, for arithmetic: a text times a large number fills the memory.

    Raises:
        KeyError: the key is absent and has no default.
        ValueError: the value is not an int or a float.
    """
    value = content[key] if default is LEFT_OUT else content.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected {key} to be a number, found {shown(value)}")
    return value


@contextlib.contextmanager
def naming(key: str, value: Any) -> Iterator[None]:
    """Turns errors of its block into a `ValueError` that begins with the key and its value."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"and no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        reason = shown(reason, 400, quoted=False)
        if reason.startswith("of "):  # the reason states the value itself
            raise ValueError(f"has {key} {reason}") from error
        raise ValueError(f"has {key}={shown(value)}, {reason}") from error


@dataclasses.dataclass(frozen=True)
class JsonTable:
    """The rows of one object in one JSON file.

    Args:
        file: name of the file.
        rows: the rows of the object.
        at: the keys that lead from the top of the file to the object.
        assumed: takes the whole file and returns the library's values for keys that the object
            lacks or has as null; the name of an architecture may imply them.
        shown: takes the fields that the arrays show, and the values so far; returns the library's
            values for keys that the object lacks, which count more than the assumed ones.
        beside: takes all files and returns keys of another object that the rows also read.
        when: condition of the models for which the object is written.
        is_written: False for an object that is only read.
    """

    file: str
    rows: tuple[Row, ...]
    at: tuple[str, ...] = ()
    assumed: Callable[[Json], Json] = lambda content: {}
    shown: Callable[[Json, Json], Json] = lambda arrays, content: {}
    beside: Callable[[Json], Json] = lambda files: {}
    when: str = ""
    is_written: bool = True

    def read_from(self, files: Json, arrays: Json) -> dict[str, Any]:
        """Returns the fields that the files state. Raises `ValueError`, naming file and key.

        Args:
            files: the JSON objects, by file name.
            arrays: fields that the arrays show.
        """
        if self.file not in files:
            return {}
        fields: dict[str, Any] = {}
        try:
            assumed = self.assumed(files[self.file])
            own = object_at(files[self.file], self.at)
            content = {
                **assumed,
                **{k: v for k, v in own.items() if v is not None or k not in assumed},
            }
            shown_by_arrays = self.shown(arrays, content) if arrays else {}
            content |= {k: v for k, v in shown_by_arrays.items() if k not in own}
            content |= self.beside(files)
            for row in self.rows:
                fields |= row.read_from(content)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{self.file} {error}") from error
        return fields

    def write_for(self, facts: Facts) -> dict[str, Any]:
        """Returns this table's part of the file's contents, as `{file: contents}`."""
        if not self.is_written or not parse(self.when).holds(facts.config):
            return {}
        content: Any = {}
        for row in self.rows:
            content |= row.write_for(facts)
        for key in reversed(self.at):
            content = {key: content}
        return {self.file: content}


def object_at(content: Any, keys: Sequence[str]) -> dict[str, Any]:
    """Returns the object below some keys; an empty object if a key is absent or null.

    Raises:
        ValueError: a value on the way is not an object.
    """
    for key in keys:
        content = content.get(key)
        if content is None:
            return {}
        if not isinstance(content, Mapping):
            raise ValueError(f"has {key}={shown(content)}, expected an object")
    return dict(content)


def merge(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one object from several, merging objects under the same key."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merge([result[key], value]) if both else value
    return result


def names_by_number(names: Any) -> tuple[str, ...]:
    """Returns the names of the classes from an object `{number: name}`, or from a list.

    Raises:
        ValueError: the keys are not 0, 1, 2 and so on.
    """
    if not isinstance(names, Mapping):
        return tuple(str(name) for name in names)
    if names.keys() != {str(k) for k in range(len(names))}:
        keys = listed(map(str, names))
        raise ValueError(f"of the keys {keys}, expected 0 to {len(names) - 1}")
    return tuple(str(names[str(k)]) for k in range(len(names)))
