"""What every kernel computes, in `keras.ops`: the truth that the fast forms are tested against.

Nothing here has a gradient of its own, so that every derivative that a backend knows is right:
of any order, in both directions. `KERAS_VIT_KERNELS=reference` computes everything this way.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

MOST_SCORES = 5 * 2**18
"""Scores of one head, tokens times others, up to which a CPU keeps them all at once.

A square image of 560 pixels has as many at 16 pixels a patch; one of 1024 pixels thirteen times
as many, of which only a block at a time is kept.
"""


def block_of_queries(others: int) -> int:
    """Returns how many queries have at most `MOST_SCORES` scores together."""
    return max(1, MOST_SCORES // others)


def normalise(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    """Returns `(x - mean) / sqrt(variance + epsilon)` over `axes`, in float32 at least.

    `ops.moments`, on which Keras's norms stand, holds the mean for a constant under TensorFlow:
    first derivatives are right, second ones are off by a quarter.
    """
    x = ops.cast(x, at_least_float32(x))
    centred = x - ops.mean(x, axes, keepdims=True)
    return centred * ops.rsqrt(ops.mean(ops.square(centred), axes, keepdims=True) + epsilon)


def at_least_float32(x: Any) -> str:
    """Returns the type in which a norm of `x` is computed."""
    return keras.backend.result_type(keras.backend.standardize_dtype(x.dtype), "float32")


def scaled(x: Any, gamma: Any, beta: Any, axes: list[int]) -> Any:
    """Returns `x * gamma + beta`; either may be None, and has the axes `axes` of `x`."""
    shape = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
    if gamma is not None:
        x = x * ops.cast(ops.reshape(gamma, shape), x.dtype)
    return x if beta is None else x + ops.cast(ops.reshape(beta, shape), x.dtype)


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Normalises the last axis: `(x - mean) / sqrt(variance + epsilon) * gamma + beta`.

    Computes in float32 at least, and returns the type of `x`.
    """
    y = normalise(x, (-1,), epsilon)
    return ops.cast(y * ops.cast(gamma, y.dtype) + ops.cast(beta, y.dtype), x.dtype)


def gelu(x: Any, approximate: bool) -> Any:
    """x Phi(x), or its approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    Args:
        x: of any shape.
        approximate: whether to approximate.
    """
    return ops.gelu(x, approximate=approximate)


def linear(x: Any, kernel: Any, bias: Any, axes: int = 1) -> Any:
    """The product of the last `axes` of `x` with as many first ones of `kernel`, plus bias.

    Args:
        x: `(..., *inputs)`.
        kernel: `(*inputs, *outputs)`.
        bias: `(*outputs)`, or None.
        axes: how many axes the inputs have.

    Returns:
        `(..., *outputs)`.
    """
    y = ops.tensordot(x, kernel, axes)
    return y if bias is None else y + bias


def attention(query: Any, key: Any, value: Any) -> Any:
    """softmax(q k^T / sqrt(head_dim)) v (Eqs. 6 and 7), with a float32 softmax.

    Args:
        query: `(batch, tokens, heads, head_dim)`.
        key, value: `(batch, others, heads, head_dim)`.

    Returns:
        `(batch, tokens, heads, head_dim)`.
    """
    weights = attention_weights(query, key)
    return ops.einsum("bhqk,bkhd->bqhd", ops.cast(weights, value.dtype), value)


def attention_weights(query: Any, key: Any) -> Any:
    """Returns softmax(q k^T / sqrt(head_dim)) (Eq. 6), float32 `(batch, heads, tokens, others)`."""
    query = query / query.shape[-1] ** 0.5
    scores = ops.einsum("bqhd,bkhd->bhqk", query, key)
    return ops.softmax(ops.cast(scores, at_least_float32(scores)), axis=-1)


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """Returns a function whose gradient keeps its inputs alone, and runs it once more.

    Args:
        function: of tensors.
        layer: whose weights `function` reads besides.
    """
    return keras.remat(function)


def uniform(shape: tuple[int, ...], limit: float, seed: Any) -> Any:
    """Draws float32 numbers in [-limit, limit); `seed` is an int or a `SeedGenerator`."""
    return keras.random.uniform(shape, -limit, limit, dtype="float32", seed=seed)


def tensor(x: Any, dtype: str | None = None) -> Any:
    """Returns a weight or a tensor as a tensor, of the type `dtype` unless that is None."""
    x = ops.convert_to_tensor(x)
    return x if dtype is None else ops.cast(x, dtype)


def call_part(layer: Any, part: Any, *inputs: Any, **arguments: Any) -> Any:
    """Returns `part(*inputs, **arguments)`.

    Args:
        layer: whoever calls, with the `dtype_policy` under which it computes.
        part: a layer, mostly one of its sublayers.
        inputs: tensors.
        arguments: as `part` takes them.
    """
    return part(*inputs, **arguments)


def direct(layer_class: Any) -> Any:
    """Decorates a class of keras_vit whose `call` may stand for the layer, see `call_part`."""
    return layer_class
