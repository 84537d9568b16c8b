"""Parts of a layer, run without Keras's bookkeeping around a call.

Keras spends a tenth of a millisecond on a call before anything is computed: masks, scopes,
casts, argument checks. A block has ten parts, so that eager torch spends a third of a small
forward pass on them. Parts that need that bookkeeping, because they were quantised or someone
has put a hook in place of their `call`, get it.
"""

import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit import kernels

_EAGER = keras.backend.backend() == "torch"


def project(layer: Any, x: Any, axes: int = 1) -> Any:
    """Returns `layer(x)` of a Dense or EinsumDense that maps the last `axes` of `x` to others."""
    if not _is_plain(layer):
        return layer(x)
    return kernels.linear(_cast(x, layer.compute_dtype), *_weights(layer), axes)


def project_each(layers: Sequence[Any], x: Any) -> tuple[Any, ...]:
    """Returns `layer(x)` of several such layers alike, with `x` cast once."""
    x = _cast(x, layers[0].compute_dtype)
    return tuple(project(layer, x) for layer in layers)


def normalise(layer: Any, x: Any) -> Any:
    """Returns `layer(x)` of a LayerNorm, which takes inputs of any float type as they are."""
    return layer.call(x) if _is_plain(layer) else layer(x)


def is_fresh(layer: Any) -> bool:
    """Whether nobody but the caller has what `project(layer, ...)` returns."""
    return _EAGER and _is_plain(layer)


def run(layer: Any, x: Any, training: bool | None) -> Any:
    """Returns `layer(x, training=training)` of an Attention or MLP."""
    return (layer.call if _is_plain(layer) else layer)(x, training=training)


def directly(block: Any) -> Any:
    """Returns what to call in place of a block; graphs that are traced keep the block's name."""
    return block.call if _EAGER and _is_plain(block) else block


def _is_plain(layer: Any) -> bool:
    return (
        getattr(layer, "quantization_mode", None) is None
        and getattr(layer, "_remat_mode", None) is None
        and "call" not in vars(layer)
    )


def _weights(layer: Any) -> tuple[Any, Any]:
    dtype = layer.compute_dtype
    kernel = _cast(_value(layer.kernel), dtype)  # with what LoRA adds to it
    return kernel, None if layer.bias is None else _cast(_value(layer.bias), dtype)


def _value(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _cast(x: Any, dtype: str) -> Any:
    return x if _name(x.dtype) == dtype else ops.cast(x, dtype)


_name = functools.cache(keras.backend.standardize_dtype)
