"""Imports optional packages, which the extras of keras-vit-zoo install."""

import importlib
import importlib.util
from typing import Any

from keras_vit.errors import ConfigError, first_line


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Imports a module of an optional package.

    Args:
        module: full name of the module.
        extra: extra of keras_vit that installs it.
        purpose: the part of keras_vit that needs it.

    Raises:
        ConfigError: the package is not installed (the message has the pip command), or its import
            fails (the message has the cause).
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if getattr(error, "name", None) != package and is_installed(package):
            cause = first_line(error)
            raise ConfigError(
                f"{purpose} needs {package}, which is installed, but its import fails: {cause}"
            ) from error
        raise ConfigError(
            f"{purpose} needs {package}: pip install 'keras-vit-zoo[{extra}]'."
        ) from error


def is_installed(module: str) -> bool:
    """Whether a module can be imported; an empty folder with its name does not count."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None
