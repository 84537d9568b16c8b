"""Fast implementations of the operations that decide the speed and memory of a block.

`reference` implements them with `keras.ops`, for every backend. If a faster form for one backend
saves more than 3 % of the time or 5 % of the memory, it is in the file with the backend's name,
with the same signature, values and gradients; every other operation is the reference. Layers
import the operations from this package.

The environment variable `KERAS_VIT_KERNELS` is read when keras_vit is imported: `fast`, or
`reference` for plain operations without custom gradients. If an output looks wrong, first check it
with `reference`.
"""

import importlib
import os
from types import ModuleType
from typing import Any

import keras

from keras_vit.errors import ConfigError
from keras_vit.kernels import reference

CHOICES = ("fast", "reference")


def _import_forms(choice: str) -> ModuleType:
    """Returns the module that implements the operations.

    Raises:
        ConfigError: KERAS_VIT_KERNELS is not one of `CHOICES`.
    """
    if choice not in CHOICES:
        raise ConfigError(
            f"The environment variable KERAS_VIT_KERNELS is {choice!r}; expected "
            f"{' or '.join(CHOICES)}."
        )
    backend = keras.backend.backend()
    name = backend if backend in ("jax", "openvino", "tensorflow", "torch") else "reference"
    return importlib.import_module(f"keras_vit.kernels.{name if choice == 'fast' else choice}")


_choice = os.environ.get("KERAS_VIT_KERNELS") or "fast"
_forms = _import_forms(_choice)


def _form(operation: str) -> Any:
    """Returns the backend's implementation of an operation, or else the reference."""
    return getattr(_forms, operation, getattr(reference, operation))


attention, gelu, layer_norm = _form("attention"), _form("gelu"), _form("layer_norm")
linear, patches, remat = _form("linear"), _form("patches"), _form("remat")
rotate, tensor, uniform = _form("rotate"), _form("tensor"), _form("uniform")
have_whole_block = _choice == "fast" and keras.backend.backend() == "torch"
"""Whether `layers.torch_block` computes an encoder block with one function, in inference."""
