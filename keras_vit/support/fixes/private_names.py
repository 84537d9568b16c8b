"""Replacements for private names of other libraries that an installed version lacks."""

from typing import TypeVar

Form = TypeVar("Form")

PLAIN_FORMS: dict[str, str] = {}
"""Each private name that an installed library lacks, and a sentence about its replacement."""


def fallback(name: str, form: Form, words: str) -> Form:
    """Returns the replacement of a missing private name, and records it for `keras-vit doctor`.

    Args:
        name: full name that the other library lacks.
        form: replacement, such as a function that computes without the private name.
        words: sentence about the replacement, for the user.
    """
    PLAIN_FORMS[name] = words
    return form
