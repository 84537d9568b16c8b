"""The exceptions that keras_vit raises.

Each is a `ValueError`, so that code without knowledge of keras_vit can catch it. Each
message names the argument, key or file, the value found, the values expected, and a
remedy if there is one.
"""

import difflib
import re
import reprlib
from collections.abc import Iterable
from typing import Any

from keras_vit.support.text import visible

__all__ = [
    "BackendError",
    "CheckpointError",
    "ConfigError",
    "ExportError",
    "KerasViTError",
    "PresetError",
    "SourceError",
    "WriteError",
]
__dir__ = __all__.copy


class KerasViTError(ValueError):
    """Base of every exception that keras_vit raises on purpose.

    Its message may quote text from files, servers and users; its string is safe for a terminal.
    """

    def __str__(self) -> str:
        text = re.sub(r"\x1b\[[01]m", "", Exception.__str__(self))  # Keras prints some parts bold
        return visible(text, lines=True)


class ConfigError(KerasViTError):
    """An argument of a model, layer or function is invalid."""


class CheckpointError(KerasViTError):
    """A file of weights cannot be read, or holds another model than the arguments say.

    The message names the first arrays that do not fit; `differences` has a line for every one.
    """

    differences: tuple[str, ...] = ()


class PresetError(KerasViTError):
    """A preset does not exist, or its folder is damaged."""


class SourceError(PresetError, CheckpointError):
    """A source does not exist, or cannot be told to be a preset or a checkpoint."""


class ExportError(KerasViTError):
    """A model cannot be written in a format, or the written model gives other answers.

    The export has removed its files.
    """


class WriteError(KerasViTError, OSError):
    """A file cannot be written: no space, no permission, no such folder. Also an `OSError`."""

    def __init__(self, message: str, cause: OSError) -> None:
        super().__init__(message)
        self.errno, self.strerror = cause.errno, cause.strerror


class BackendError(KerasViTError, ImportError):
    """The backend is not installed, or lacks a requested computation."""


def expect_model(model: Any, error: type[KerasViTError] = ConfigError) -> Any:
    """Returns the argument `model` of a function; refuses anything but a `VisionTransformer`.

    That class stands above this module, so it is known by a method that no other class has.

    Raises:
        KerasViTError: an `error`, which names what was found.
    """
    kind = type(model)
    if hasattr(kind, "_check_stages"):
        return model
    found = shown(model)
    if kind.__module__ != "builtins":  # several libraries have a class VisionTransformer
        named = f" named {shown(model.name)}" if hasattr(model, "name") else ""
        found = f"a {kind.__module__.partition('.')[0]}.{kind.__name__}{named}"
    raise error(
        f"model: expected a keras_vit.VisionTransformer, found {found}. "
        "keras_vit.VisionTransformer.from_preset loads one."
    )


def nearest(name: object, known: Iterable[str]) -> str:
    """Returns `" Did you mean 'x'?"` for the closest known name, else `""`."""
    if not isinstance(name, str) or len(name) > 100:
        return ""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""


def first_line(error: BaseException, hidden: str = "\0") -> str:
    """Returns the class of a library's exception and the first line of its message.

    Args:
        error: the exception.
        hidden: text that is left out, such as the path of a temporary folder.
    """
    lines = str(error).replace(hidden, "").strip().splitlines() or [""]
    return f"{type(error).__name__}: {shown(lines[0], 300, quoted=False)}"


def shown(value: object, most: int = 120, quoted: bool = True) -> str:
    """Returns the `repr` of a value for a message, cut in the middle to `most` characters.

    A value from a file may be an integer of a million digits, which Python refuses to print,
    or a list of a million items; both are abbreviated.

    Args:
        value: any value.
        most: number of characters that are kept.
        quoted: whether the result shows a string with quotation marks.
    """
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = most
    brief.maxlist = brief.maxtuple = brief.maxdict = brief.maxset = 12
    brief.maxlong = 40
    if isinstance(value, int) and abs(value) >= 10**40:
        return f"an int of {value.bit_length()} bits"
    try:
        text = value if isinstance(value, str) and not quoted else brief.repr(value)
    except ValueError:  # an int of more digits than Python prints, inside a list
        return f"a {type(value).__name__} with an int of thousands of digits"
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 2 + 3 :]}"


def described(item: object, **facts: object) -> str:
    """Returns the `repr` of an object by facts about it, in one line."""
    words = (f"{name}={shown(value)}" for name, value in facts.items())
    return f"<{type(item).__name__} {', '.join(words)}>"


def listed(names: Iterable[str], most: int = 5) -> str:
    """Returns `"a, b, c and 17 more"`: the first names and the number of further names."""
    names = list(names)
    first = ", ".join(shown(name, quoted=False) for name in names[:most])
    rest = len(names) - most
    return f"{first} and {rest:,} more" if rest > 0 else first or "none"
