"""Log records and warnings of keras_vit, which may quote strangers: file names, labels, errors."""

import logging
import warnings

from keras_vit.terminal import visible

log = logging.getLogger("keras_vit")


def warn(message: str, stacklevel: int) -> None:
    """Issues a `UserWarning` whose text has no control characters.

    Args:
        message: text, possibly of several lines.
        stacklevel: as for `warnings.warn`, counted from the caller.
    """
    warnings.warn(visible(message, lines=True), stacklevel=stacklevel + 1)


def _show(record: logging.LogRecord) -> bool:
    """Replaces a record's message by its visible form; keeps every record."""
    record.msg, record.args = visible(record.getMessage(), lines=True), ()
    return True


log.addFilter(_show)
