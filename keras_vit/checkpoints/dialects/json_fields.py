"""The JSON beside the weights as a table: the same rows read it and write it.

A row says a key of the library, the field of `ViTConfig` that it states, and how the one
value becomes the other. `"numerics.gelu"` is a field of `Numerics`, `"labels"` are the names
of the classes. Four kinds of rows serve: `JsonField` (one key, one field), `JsonFields`
(several keys that only together state something), `JsonConstant` (a key that keras_vit can
hold with one value alone) and `JsonNote` (a key that is written for the library and read by
nobody here).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_vit.config import ViTConfig
from keras_vit.errors import listed, shown

Labels = str | tuple[str, ...] | None
Json = Mapping[str, Any]

NOT_TOLD: Any = object()
"""A default: where the key is absent, the row states nothing."""
REQUIRED: Any = object()
"""A default: the library always writes the key."""


def always(config: ViTConfig) -> bool:
    """The condition of what every model has."""
    return True


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the rows write: a model's configuration and the names of its classes."""

    config: ViTConfig
    labels: tuple[str, ...] | None = None

    def of(self, field: str) -> Any:
        """Returns the value of a field, as rows name it."""
        if field == "labels":
            return self.labels
        part, _, name = field.rpartition(".")
        return getattr(getattr(self.config, part) if part else self.config, name)


@dataclasses.dataclass(frozen=True)
class Codec:
    """How one value is written and read.

    Args:
        write: from the value in keras_vit to the library's.
        read: from the library's value to the one in keras_vit. Raises `ValueError` with
            what was expected.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


SAME = Codec(lambda value: value, lambda value: value)


def one_of(words: Mapping[Any, Any]) -> Codec:
    """Returns the codec of a table from the library's words to values of keras_vit.

    Of several words with one meaning the first is written.
    """
    written: dict[Any, Any] = {}
    for word, value in words.items():
        written.setdefault(value, word)

    def read(word: Any) -> Any:
        if not isinstance(word, (str, int, bool, type(None))) or word not in words:
            raise ValueError(f"expected one of {', '.join(map(str, words))}")
        return words[word]

    return Codec(written.__getitem__, read)


def _square_as_int(sides: Any) -> Any:
    rows, columns = sides
    return rows if rows == columns else [rows, columns]


SIDES = Codec(_square_as_int, lambda value: value)
"""(rows, columns): one int where they are equal, else a list."""


@dataclasses.dataclass(frozen=True)
class JsonField:
    """One key and the field that it states.

    Args:
        key: the library's word.
        field: the name in `ViTConfig`.
        codec: how the value is written and read.
        default: the library's value where the key is absent, `NOT_TOLD` or `REQUIRED`.
        write: the library's value where the field alone does not tell it; instead of
            `codec.write`. `NOT_TOLD` leaves the key out.
        when: the models for which the key is written.
    """

    key: str
    field: str
    codec: Codec = SAME
    default: Any = NOT_TOLD
    write: Callable[[Facts], Any] | None = None
    when: Callable[[ViTConfig], bool] = always

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the row."""
        return (self.key,)

    def stated(self, found: Json) -> dict[str, Any]:
        """Returns what an object of the library states, by our fields."""
        value = found.get(self.key, self.default)
        if value is NOT_TOLD:
            return {}
        if value is REQUIRED:
            raise LookupError(f"has no {self.key}")
        with naming(self.key, value):
            return {self.field: self.codec.read(value)}

    def written(self, facts: Facts) -> dict[str, Any]:
        """Returns what the library writes for a model, by its keys."""
        if not self.when(facts.config):
            return {}
        own = self.write
        value = own(facts) if own else self.codec.write(facts.of(self.field))
        return {} if value is NOT_TOLD else {self.key: value}


@dataclasses.dataclass(frozen=True)
class JsonFields:
    """Several keys that state fields together.

    Args:
        keys: the library's words; the first is named where the values cannot be read.
        fields: the names in `ViTConfig`.
        read: from the library's object to those fields.
        write: from the configuration to the library's keys; those that it leaves out have
            the library's default.
    """

    keys: tuple[str, ...]
    fields: tuple[str, ...]
    read: Callable[[Json], Mapping[str, Any]]
    write: Callable[[ViTConfig], Mapping[str, Any]]

    def stated(self, found: Json) -> dict[str, Any]:
        """Returns what an object of the library states, by our fields."""
        with naming(self.keys[0], found.get(self.keys[0])):
            return dict(self.read(found))

    def written(self, facts: Facts) -> dict[str, Any]:
        """Returns what the library writes for a model, by its keys."""
        return dict(self.write(facts.config))


@dataclasses.dataclass(frozen=True)
class JsonConstant:
    """A key with one value: that of every model which keras_vit holds.

    Args:
        key: the library's.
        value: written, and expected where the key is there.
        also: further values that mean the same.
        when: the models for which the key is written.
    """

    key: str
    value: Any
    also: Sequence[Any] = ()
    when: Callable[[ViTConfig], bool] = always

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the row."""
        return (self.key,)

    def stated(self, found: Json) -> dict[str, Any]:
        """Checks the value and states nothing."""
        value = found.get(self.key, self.value)
        if value != self.value and value not in self.also:
            with naming(self.key, value):
                raise ValueError(f"expected {self.value!r}")
        return {}

    def written(self, facts: Facts) -> dict[str, Any]:
        """Returns the value for a model that has it."""
        return {self.key: self.value} if self.when(facts.config) else {}


@dataclasses.dataclass(frozen=True)
class JsonNote:
    """A key that the library reads and keras_vit does not.

    Args:
        key: the library's.
        write: its value for a model.
        when: the models for which the key is written.
    """

    key: str
    write: Callable[[Facts], Any]
    when: Callable[[ViTConfig], bool] = always

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the row."""
        return (self.key,)

    def stated(self, found: Json) -> dict[str, Any]:
        """States nothing."""
        return {}

    def written(self, facts: Facts) -> dict[str, Any]:
        """Returns the value for a model that has it."""
        return {self.key: self.write(facts)} if self.when(facts.config) else {}


Row = JsonField | JsonFields | JsonConstant | JsonNote


class naming:  # noqa: N801  reads as a verb: with naming(key, value)
    """Puts key and value in front of the reason for which a value cannot be read."""

    def __init__(self, key: str, value: Any) -> None:
        self._key, self._value = key, value

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)):
            reason = f"and no {error.args[0]}" if isinstance(error, KeyError) else str(error)
            reason = shown(reason, 400, quoted=False)
            if reason.startswith("of "):  # says itself what was found
                raise ValueError(f"has {self._key} {reason}") from error
            raise ValueError(f"has {self._key}={shown(self._value)}, {reason}") from error


@dataclasses.dataclass(frozen=True)
class JsonTable:
    """The rows of one object in one JSON file.

    Args:
        file: name of the file.
        rows: of the object.
        at: the keys that lead to the object, from the file's own down.
        assumed: what the library takes for granted where the object lacks a key or has null;
            given the whole file, since the name of an architecture may tell it.
        beside: keys of another object that the rows read too; given all files.
        when: the models for which the object is written.
        is_read, is_written: False for an object that repeats another one, which is written
            alone or read alone.
    """

    file: str
    rows: tuple[Row, ...]
    at: tuple[str, ...] = ()
    assumed: Callable[[Json], Json] = lambda content: {}
    beside: Callable[[Json], Json] = lambda files: {}
    when: Callable[[ViTConfig], bool] = always
    is_read: bool = True
    is_written: bool = True

    def stated(self, files: Json) -> dict[str, Any]:
        """Returns the fields that the files state. Raises `ValueError`, naming file and key."""
        if self.file not in files or not self.is_read:
            return {}
        stated: dict[str, Any] = {}
        try:
            assumed = self.assumed(files[self.file])
            told = object_at(files[self.file], self.at)
            found = {
                **assumed,
                **{k: v for k, v in told.items() if v is not None or k not in assumed},
            }
            found |= self.beside(files)
            for row in self.rows:
                stated |= row.stated(found)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{self.file} {error}") from error
        return stated

    def written(self, facts: Facts) -> dict[str, Any]:
        """Returns the file's content as far as this table makes it."""
        if not self.is_written or not self.when(facts.config):
            return {}
        content: Any = {}
        for row in self.rows:
            content |= row.written(facts)
        for key in reversed(self.at):
            content = {key: content}
        return {self.file: content}


def object_at(content: Any, keys: Sequence[str]) -> dict[str, Any]:
    """Returns the object below some keys; an empty one where a key is absent or null.

    Raises:
        ValueError: another kind of value stands there.
    """
    for key in keys:
        content = content.get(key)
        if content is None:
            return {}
        if not isinstance(content, Mapping):
            raise ValueError(f"has {key}={shown(content)}, expected an object")
    return dict(content)


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one object from several, joining the objects that they have under one key."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged([result[key], value]) if both else value
    return result


def names_by_number(names: Any) -> tuple[str, ...]:
    """Returns the names of the classes from an object by their number, or from a list.

    Raises:
        ValueError: the keys are not 0, 1, 2 and so on.
    """
    if not isinstance(names, Mapping):
        return tuple(str(name) for name in names)
    if names.keys() != {str(k) for k in range(len(names))}:
        keys = listed(map(str, names))
        raise ValueError(f"of the keys {keys}, expected 0 to {len(names) - 1}")
    return tuple(str(names[str(k)]) for k in range(len(names)))
