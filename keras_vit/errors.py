"""The three ways in which keras_vit refuses its input.

Each is a `ValueError`, so that code which knows nothing of keras_vit still
catches it; each message names the argument, key or file, what was found, what
was expected, and the next step where there is one.
"""

import difflib
from collections.abc import Iterable

from keras_vit.terminal import visible


class KerasViTError(ValueError):
    """Base of every exception that keras_vit raises on purpose.

    Its message quotes files, servers and people; as a string it is safe for a terminal.
    """

    def __str__(self) -> str:
        return visible(super().__str__(), lines=True)


class ConfigError(KerasViTError):
    """A model, layer or builder was asked for something that cannot be."""


class CheckpointError(KerasViTError):
    """A file of weights cannot be read, or does not hold the model asked for."""


class PresetError(KerasViTError):
    """A preset does not exist, or its folder is not what a preset must be."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns `" Did you mean 'x'?"` for the closest known name, else `""`."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""
