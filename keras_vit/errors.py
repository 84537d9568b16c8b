"""The exceptions that keras_vit raises.

Each is a `ValueError`, so that code that does not know keras_vit can catch it. Each
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
    """Base class of every exception that keras_vit raises on purpose.

    The message may quote text from files, servers and users; `str` returns it in a form that is
    safe for a terminal.
    """

    def __str__(self) -> str:
        text = re.sub(r"\x1b\[[01]m", "", Exception.__str__(self))  # Keras prints some parts bold
        return visible(text, lines=True)


class ConfigError(KerasViTError):
    """An argument of a model, layer or function is invalid."""


class CheckpointError(KerasViTError):
    """A file of weights cannot be read, or does not match the requested model.

    The message names the first mismatched arrays; `differences` has a line for each of them.
    """

    differences: tuple[str, ...] = ()


class PresetError(KerasViTError):
    """A preset does not exist, or its folder is damaged."""


class SourceError(PresetError, CheckpointError):
    """A source does not exist, or is neither a preset nor a checkpoint."""


class ExportError(KerasViTError):
    """A model cannot be exported to a format, or the exported model computes other outputs.

    The files of the failed export are removed.
    """


class WriteError(KerasViTError, OSError):
    """A file cannot be written: disk full, permission denied, or folder missing.

    It is also an `OSError`.
    """

    def __init__(self, message: str, cause: OSError) -> None:
        super().__init__(message)
        self.errno, self.strerror = cause.errno, cause.strerror


class BackendError(KerasViTError, ImportError):
    """The backend is not installed, or does not support a requested computation."""


def expect_model(model: Any, error: type[KerasViTError] = ConfigError) -> Any:
    """Returns the argument `model` of a function; refuses anything but a `VisionTransformer`.

    This module cannot import that class, so it recognizes the class by a private method.

    Raises:
        KerasViTError: an exception of the class `error`; the message names what was found.
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
        hidden: text to remove from the message, such as the path of a temporary folder.
    """
    lines = str(error).replace(hidden, "").strip().splitlines() or [""]
    return f"{type(error).__name__}: {shown(lines[0], 300, quoted=False)}"


def shown(value: object, most: int = 120, quoted: bool = True) -> str:
    """Returns the `repr` of a value for a message, cut in the middle to `most` characters.

    A file may hold an integer of a million digits, which Python refuses to print, or a list of a
    million items; both are abbreviated.

    Args:
        value: any value.
        most: largest number of characters in the result.
        quoted: whether a string is shown in quotation marks.
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
    """Returns a `repr` that shows facts about an object in one line."""
    words = (f"{name}={shown(value)}" for name, value in facts.items())
    return f"<{type(item).__name__} {', '.join(words)}>"


def listed(names: Iterable[str], most: int = 5) -> str:
    """Returns `"a, b, c and 17 more"`: the first names and the number of further names."""
    names = list(names)
    first = ", ".join(shown(name, quoted=False) for name in names[:most])
    rest = len(names) - most
    return f"{first} and {rest:,} more" if rest > 0 else first or "none"
