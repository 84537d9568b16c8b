r"""Makes untrusted text safe for a terminal, a figure, Markdown and a log.

Labels, provenance, tensor names, file names and error pages are untrusted. On a terminal an
escape sequence in them could move the cursor, rename the window or hide a line; U+202E could
turn `gpj.exe` into `exe.jpg`; `[red]` is markup for rich, `[x](y)` for Markdown and `$\frac$`
for matplotlib. The functions here show such characters as escapes. `progress.Screen` applies them
to all output of rich, and `KerasViTError`, `log` and `warn` to their messages.
"""

import inspect
import logging
import re
import unicodedata
import warnings

_INVISIBLE = "\u034f\u115f\u1160\u3164\uffa0"
"""Invisible letters and marks that Unicode does not list as format characters."""
_MARKUP = re.compile(r"[\\`*\[\]<>&~|!#$]|(?<![^\W_])_|_(?![^\W_])")
"""Characters with a meaning in Markdown, but not an underscore inside a word."""


def visible(text: object, lines: bool = False) -> str:
    r"""Returns the text on one line with every invisible character escaped.

    Control characters, terminal escapes, bidirectional overrides, zero-width characters, line
    and paragraph separators and bytes of file names that are not UTF-8 become escapes of Python
    such as `\x1b` and `\u202e`.

    Args:
        text: a string, or an object with a `str` form, such as a path.
        lines: whether line feeds and tabs are kept, for messages of several lines.
    """
    text = str(text)
    if text.isprintable() and not any(letter in text for letter in _INVISIBLE):
        return text
    kept = "\n\t" if lines else ""
    return "".join(c if c in kept or _can_be_seen(c) else _escape(c) for c in text)


def counted(number: int, noun: str) -> str:
    """Returns `"1 image"`, or `"1,200 images"`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_markdown(text: object) -> str:
    """Returns text for a line of Markdown, with markup escaped; a bare URL stays a link."""
    return _MARKUP.sub(r"\\\g<0>", visible(text))


def _can_be_seen(character: str) -> bool:
    if character in _INVISIBLE:
        return False
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte of a file name that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


log = logging.getLogger("keras_vit")

_BELOW_THE_USER = {"keras_vit", "keras", "tensorflow", "jax", "torch"}
"""Packages that a warning does not point at: their lines would not help the user."""


def warn(message: str) -> None:
    """Issues a `UserWarning` that points at the user's line, without control characters.

    The user's line is the nearest one outside keras_vit, Keras and the backends.

    Args:
        message: text, possibly of several lines.
    """
    frame, level = inspect.currentframe(), 1
    while frame is not None and _package(frame.f_globals) in _BELOW_THE_USER:
        frame, level = frame.f_back, level + 1
    warnings.warn(visible(message, lines=True), stacklevel=level)


def _package(module: dict[str, object]) -> str:
    return str(module.get("__name__", "")).partition(".")[0]


def _show(record: logging.LogRecord) -> bool:
    """Escapes a record's message, as a filter that keeps every record."""
    record.msg, record.args = visible(record.getMessage(), lines=True), ()
    return True


log.addFilter(_show)
