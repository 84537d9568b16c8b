"""Parts of a layer, run without Keras's bookkeeping around a call.

Keras spends a tenth of a millisecond on a call before anything is computed: masks, scopes,
casts, argument checks. A block has ten parts, so that eager torch spends a third of a small
forward pass on them. Parts that need that bookkeeping, because they were quantised or someone
has put a hook in place of their `call`, get it.
"""

import functools
from typing import Any

import keras
from keras import ops

from keras_vit.layers import fast


def project(layer: Any, x: Any, axes: int = 1) -> Any:
    """Returns `layer(x)` of a Dense or EinsumDense that maps the last `axes` of `x` to others."""
    if not _is_plain(layer):
        return layer(x)
    dtype = layer.compute_dtype
    kernel = _cast(_value(layer.kernel), dtype)  # with what LoRA adds to it
    bias = None if layer.bias is None else _cast(_value(layer.bias), dtype)
    return fast.linear(_cast(x, dtype), kernel, bias, axes)


def normalise(layer: Any, x: Any) -> Any:
    """Returns `layer(x)` of a LayerNorm, which takes inputs of any float type as they are."""
    return layer.call(x) if _is_plain(layer) else layer(x)


def run(layer: Any, x: Any, training: bool | None) -> Any:
    """Returns `layer(x, training=training)` of an Attention or MLP."""
    return (layer.call if _is_plain(layer) else layer)(x, training=training)


def _is_plain(layer: Any) -> bool:
    return (
        getattr(layer, "quantization_mode", None) is None
        and getattr(layer, "_remat_mode", None) is None
        and "call" not in vars(layer)
    )


def _value(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _cast(x: Any, dtype: str) -> Any:
    return x if _name(x.dtype) == dtype else ops.cast(x, dtype)


_name = functools.cache(keras.backend.standardize_dtype)
