"""The formats, one file each."""

import importlib
from typing import get_args

from keras_vit.exporting.plan import Format
from keras_vit.support import arguments

FORMATS: tuple[str, ...] = get_args(arguments.Format)
"""Names of the formats, as `keras_vit.export` takes them."""


def load_format(name: str) -> Format:
    """Returns a format. Its converter is imported when it is used."""
    form: Format = importlib.import_module(f"keras_vit.exporting.formats.{name}").FORMAT
    return form
