"""The operations whose form decides the speed of a block, or its memory.

`reference` states them with `keras.ops`, for every backend. Where a backend's own form
wins by more than 3 %, the file of its name has it, with the same signature, equal in value
and gradient. Layers take them from here.
"""

import importlib

import keras

_backend = keras.backend.backend()
_form = _backend if _backend in ("jax", "tensorflow", "torch") else "reference"
_forms = importlib.import_module(f"keras_vit.kernels.{_form}")
attention, gelu, layer_norm = _forms.attention, _forms.gelu, _forms.layer_norm
linear, remat, uniform = _forms.linear, _forms.remat, _forms.uniform
call_part, direct = _forms.call_part, _forms.direct

__all__ = [
    "attention",
    "call_part",
    "direct",
    "gelu",
    "layer_norm",
    "linear",
    "remat",
    "uniform",
]
