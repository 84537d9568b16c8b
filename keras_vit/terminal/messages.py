"""Log records and warnings of keras_vit, which may quote strangers: file names, labels, errors."""

import inspect
import logging
import warnings

from keras_vit.terminal import visible

log = logging.getLogger("keras_vit")

_BELOW_THE_USER = {"keras_vit", "keras", "tensorflow", "jax", "torch"}
"""Packages whose lines say nothing to somebody who reads where a warning comes from."""


def warn(message: str) -> None:
    """Issues a `UserWarning` at the user's line, without control characters.

    The line is the nearest one outside keras_vit, Keras and the backends, however many of their
    functions and decorators lie between.

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
    """Replaces a record's message by its visible form; keeps every record."""
    record.msg, record.args = visible(record.getMessage(), lines=True), ()
    return True


log.addFilter(_show)
