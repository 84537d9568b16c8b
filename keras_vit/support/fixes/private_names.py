"""Private names of other libraries that keras_vit uses where they exist."""

from typing import TypeVar

Form = TypeVar("Form")

PLAIN_FORMS: dict[str, str] = {}
"""Each private name that an installed library lacks, and a sentence on its replacement."""


def plain_form(name: str, form: Form, words: str) -> Form:
    """Returns the replacement of a missing private name, and lets `keras-vit doctor` report it.

    Args:
        name: full name that the other library lacks.
        form: replacement, such as a function that computes without the private name.
        words: sentence for the user on the replacement.
    """
    PLAIN_FORMS[name] = words
    return form
