"""Shows warnings as notes on stderr, one line each, and words messages for the shell."""

import difflib
import logging
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from keras_vit.cli.console import warn_on_stderr
from keras_vit.support.text import log

_VALUE = r"""('[^']*'|"[^"]*"|\.{3}|\([\w., +-]+\)|-?\w[\w.-]*\w|-?\w)?"""

_ELSEWHERE = {
    "source": "preset model checkpoint pretrained backbone",
    "path": "out output output-dir save-dir",
    "steps": "epochs num-epochs max-steps iterations",
    "image-size": "imgsz resolution",
    "dtype": "amp fp16 bf16 precision mixed-precision",
    "finetune": "train fit",
    "predict": "classify infer",
    "evaluate": "test score",
}
"""Options and commands, and what other tools call them."""


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn_on_stderr(record.getMessage())


@contextmanager
def notes_alone() -> Iterator[None]:
    """Context in which warnings and log lines of keras_vit are notes of one line.

    The loggers of other libraries are silent below an error. Their warnings are notes too, because
    a warning may say why a result is slow or wrong.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # silences TensorFlow's first ten lines
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    notes, fallback = _Notes(logging.WARNING), logging.lastResort
    level = fallback.level if fallback else logging.WARNING
    propagates = log.propagate
    log.addHandler(notes)
    log.propagate = False  # absl, of JAX and TensorFlow, gives the root logger a handler
    try:
        if fallback:  # it prints the lines of loggers without a handler
            fallback.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: warn_on_stderr(message)
            yield
    finally:
        log.removeHandler(notes)
        log.propagate = propagates
        if fallback:
            fallback.setLevel(level)


def suggest(word: str, known: Iterable[str]) -> str:
    """Returns `" Did you mean --x?"` for another tool's word, an abbreviation or a misspelling.

    Args:
        word: the unknown option or command.
        known: names such as `"--learning-rate"`, which `lr` and `learn` abbreviate.
    """
    typed = word.lstrip("-").lower().replace("_", "-")
    names = {name.lstrip("-").lower(): name for name in known}
    initials = {name: re.sub(r"(\w)\w*-?", r"\1", name) for name in names}
    found = [name for name in names if typed in _ELSEWHERE.get(name, "").split()]
    found += [name for name in names if name.startswith(typed) or initials[name] == typed]
    found += difflib.get_close_matches(typed, names)
    return f" Did you mean {names[found[0]]}?" if found else ""


def in_words_of_the_shell(message: str, options: Iterable[str]) -> str:
    """Returns a function's message with the options of its command instead of arguments.

    `resume=True` becomes `--resume`, `image_size=` becomes `--image-size`, and
    `read={'prefix': ...}` becomes `--prefix ...`. The name of an argument at the beginning of a
    message, as in "image_size must be", becomes an option too.

    Args:
        message: the message.
        options: the command's options, such as `"--image-size"`.
    """
    for option in options:
        name = option.removeprefix("--").replace("-", "_")
        pattern = re.compile(rf"(?<![\w.-]){name}={_VALUE}|^{name}(?= must be )")
        message = re.sub(rf"read={{'{name}': ([^{{}}]*|{{[^{{}}]*}})}}", rf"{name}=\1", message)
        parts = pattern.split(message)  # text, value, text, value, ..., text
        for k in range(1, len(parts), 2):
            parts[k] = f"{option} {_typed(parts[k])}".rstrip()
        message = "".join(parts)
    return message


def _typed(value: str | None) -> str:
    """Returns a Python value as it is typed after its option: a pair becomes two numbers."""
    return "" if value in (None, "True") else re.sub("[(),]", "", str(value))
