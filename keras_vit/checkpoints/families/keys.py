"""Tables of a library's JSON: key -> field, and how their values are converted.

An entry of a table is the path of a field (`"block.epsilon"`), a path with the library's words for
the values (`("block.norm", {"rms_norm": "rms"})`), or a codec of this module. Keys that state
fields together are one entry, separated by blanks: `"mlp_ratio use_swiglu_ffn"`.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from keras_vit.config import ViTConfig
from keras_vit.config.weights.conditions import Place
from keras_vit.errors import listed, shown

Json = Mapping[str, Any]
Facts = dict[str, Any]
"""Fields of `ViTConfig` by path, with their values."""


@dataclasses.dataclass(frozen=True)
class Codec:
    """A conversion between JSON keys and fields of a model.

    Args:
        fields: paths of the fields, separated by blanks.
        read: from the library's object to fields; a `ValueError` states the expected values.
        write: from a configuration to keys; not needed for a family that is only read. Raises
            `KeyError` for a model that the keys cannot describe.
    """

    fields: str
    read: Callable[[Json], Mapping[str, Any]]
    write: Callable[[ViTConfig], Mapping[str, Any]] = lambda config: {}


Entry = str | tuple[str, Mapping[Any, Any]] | Codec | Callable[[str], Codec] | None
"""A table of keys; None removes the entry of a shared table."""
Keys = Mapping[str, Entry]


def make_codecs(table: Keys) -> dict[str, Codec]:
    """Returns the codecs of a table by their keys."""
    return {keys: _make_codec(keys, entry) for keys, entry in table.items() if entry}


def _make_codec(keys: str, entry: Any) -> Codec:
    if isinstance(entry, Codec):
        return entry
    if isinstance(entry, tuple):
        return _worded(keys, *entry)
    return _plain(keys, entry) if isinstance(entry, str) else entry(keys)


def _plain(key: str, field: str) -> Codec:
    def write(config: ViTConfig) -> dict[str, Any]:
        value = Place(field).read(config)
        if isinstance(value, tuple):  # the key has a single value
            raise KeyError(value)
        return {key: value}

    return Codec(field, lambda content: {field: content[key]}, write)


def _worded(key: str, field: str, words: Mapping[Any, Any]) -> Codec:
    """Returns the codec of a key with a table of words; the first word for a value is written."""
    written: dict[Any, Any] = {}
    for word, value in words.items():
        written.setdefault(value, word)

    def read(content: Json) -> Facts:
        word = content[key]
        if not isinstance(word, (str, int, bool, type(None))) or word not in words:
            raise ValueError(f"expected one of {', '.join(map(str, words))}")
        return {field: words[word]}

    return Codec(field, read, lambda config: {key: written[Place(field).read(config)]})


def alike(*fields: str) -> Callable[[str], Codec]:
    """Returns the codec of a key for several fields with the same value."""
    return lambda key: Codec(
        " ".join(fields),
        lambda content: dict.fromkeys(fields, content[key]),
        lambda config: {key: Place(fields[0]).read(config)},
    )


def sides(field: str) -> Callable[[str], Codec]:
    """Returns the codec of (rows, columns): an int if they are equal, else a list."""

    def write(config: ViTConfig) -> Any:
        rows, columns = Place(field).read(config)
        return rows if rows == columns else [rows, columns]

    return lambda key: Codec(
        field, lambda content: {field: content[key]}, lambda config: {key: write(config)}
    )


def image_size(key: str) -> Codec:
    """Returns the codec of the image size of the stored positions."""

    def write(config: ViTConfig) -> dict[str, Any]:
        height, width = stored_image_size(config)
        return {key: height if height == width else [height, width]}

    return Codec("image_size", lambda keys: {"image_size": keys[key]}, write)


def only(value: Any) -> Callable[[str], Codec]:
    """Returns the codec of a key for which keras_vit supports a single value."""

    def make(key: str) -> Codec:
        def read(content: Json) -> Facts:
            if content[key] != value:
                raise ValueError(f"expected {value!r}")
            return {}

        return Codec("", read, lambda config: {key: value})

    return make


def note(value: Any) -> Callable[[str], Codec]:
    """Returns the codec of a key that is written for the library and not read.

    Args:
        value: the value, or a function that returns it for a configuration.
    """
    write = value if callable(value) else lambda config: value
    return lambda key: Codec("", lambda content: {}, lambda config: {key: write(config)})


def together(field: str, words: Mapping[tuple[Any, ...], Any]) -> Callable[[str], Codec]:
    """Returns the codec of keys that state a field together; absent keys are as in the first row.

    A value without a row is not written; this is noticed when the files are read back.

    Args:
        field: path of the field.
        words: values of the keys -> value of the field; the first row with a value is written.
    """
    usual = next(iter(words))

    def make(keys: str) -> Codec:
        names = keys.split()

        def read(content: Json) -> Facts:
            stated = [content.get(name) for name in names]
            own = tuple(known if v is None else v for v, known in zip(stated, usual, strict=True))
            if own not in [*words]:  # values may contain lists, which have no hash
                expected = " or ".join(map(str, words))
                raise ValueError(f"with {', '.join(names)} of {shown(own)}, expected {expected}")
            return {field: words[own]}

        def write(config: ViTConfig) -> Facts:
            how = [how for how, own in words.items() if own == Place(field).read(config)]
            return dict(zip(names, how[0], strict=True)) if how else {}

        return Codec(field, read, write)

    return make


def compute_ratio(size: int, width: int) -> float:
    """Returns the ratio whose product with `width`, truncated to an int, is `size`."""
    ratio = size / width
    return ratio if int(width * ratio) == size else math.nextafter(ratio, math.inf)


def stored_image_size(config: ViTConfig) -> tuple[int, int]:
    """Returns the image size to write: the model's, or that of the stored positions."""
    is_own = config.grid == config.source_grid or config.stem.is_packed
    if config.image_size is not None and is_own:
        return config.image_size
    rows, columns = config.source_grid
    return rows * config.stride[0], columns * config.stride[1]


def number(content: Json, key: str, default: Any = None) -> Any:
    """Returns a number of an object, for arithmetic: a string times an int could fill the memory.

    Raises:
        KeyError: the key is absent and has no default.
        ValueError: the value is not an int or a float.
    """
    value = content[key] if default is None else content.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected {key} to be a number, found {shown(value)}")
    return value


@contextlib.contextmanager
def naming(words: str, value: Any) -> Iterator[None]:
    """Turns errors inside the context into a `ValueError` that begins with `words` and `value`."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"and no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        reason = shown(reason, 400, quoted=False)
        if reason.startswith("of "):  # the reason states the value itself
            raise ValueError(f"{words} {reason}") from error
        raise ValueError(f"{words}={shown(value)}, {reason}") from error


def object_at(content: Any, keys: Sequence[str]) -> dict[str, Any]:
    """Returns a nested object; an empty object if a key is absent or null.

    Raises:
        ValueError: a value on the path is not an object.
    """
    for key in keys:
        content = content.get(key)
        if content is None:
            return {}
        if not isinstance(content, Mapping):
            raise ValueError(f"has {key}={shown(content)}, expected an object")
    return dict(content)


def merge(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merges objects, recursively for objects under the same key."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merge([result[key], value]) if both else value
    return result


def names_by_number(names: Any) -> tuple[str, ...]:
    """Returns the class names from an object `{number: name}` or a list.

    Raises:
        ValueError: the keys are not 0, 1, 2 and so on.
    """
    if not isinstance(names, Mapping):
        return tuple(str(name) for name in names)
    if names.keys() != {str(k) for k in range(len(names))}:
        keys = listed(map(str, names))
        raise ValueError(f"of the keys {keys}, expected 0 to {len(names) - 1}")
    return tuple(str(names[str(k)]) for k in range(len(names)))
