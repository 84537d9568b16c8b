"""The operations whose form decides the speed of a block, or its memory.

`reference` states them with `keras.ops`, for every backend. Where a backend's own form wins by
more than 3 % of the time or 5 % of the memory, the file of its name has it, with the same
signature, equal in value and gradient. Layers take them from here.

The environment variable `KERAS_VIT_KERNELS` chooses when keras_vit is imported: `fast`, or
`reference` for plain operations without gradients of their own. It is the first question to ask
of a wrong number: does the reference give it as well?
"""

import importlib
import os
from types import ModuleType

import keras

from keras_vit.errors import ConfigError

CHOICES = ("fast", "reference")


def _forms_of(choice: str) -> ModuleType:
    """Returns the module that states the operations.

    Raises:
        ConfigError: there is no such choice.
    """
    if choice not in CHOICES:
        raise ConfigError(
            f"The environment variable KERAS_VIT_KERNELS is {choice!r}; expected "
            f"{' or '.join(CHOICES)}."
        )
    backend = keras.backend.backend()
    name = backend if backend in ("jax", "tensorflow", "torch") else "reference"
    return importlib.import_module(f"keras_vit.kernels.{name if choice == 'fast' else choice}")


_forms = _forms_of(os.environ.get("KERAS_VIT_KERNELS") or "fast")
attention, gelu, layer_norm = _forms.attention, _forms.gelu, _forms.layer_norm
linear, remat, uniform = _forms.linear, _forms.remat, _forms.uniform
call_part, direct, tensor = _forms.call_part, _forms.direct, _forms.tensor

__all__ = [
    "attention",
    "call_part",
    "direct",
    "gelu",
    "layer_norm",
    "linear",
    "remat",
    "tensor",
    "uniform",
]
