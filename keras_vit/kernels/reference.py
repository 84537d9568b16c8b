"""What the fast operations compute, in `keras.ops`."""

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


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Normalises the last axis: `(x - mean) / sqrt(variance + epsilon) * gamma + beta`.

    Computes in float32 at least, and returns the type of `x`.
    """
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


def gelu(x: Any, approximate: bool, in_place: bool = False) -> Any:
    """x Phi(x), or its approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    Args:
        x: of any shape.
        approximate: whether to approximate.
        in_place: whether `x` may be overwritten, where its gradient is not wanted: nobody else
            has it. torch, whose arrays are not counted by a compiler, saves one of that size.
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
    return ops.dot_product_attention(query, key, value)


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


def call_part(layer: Any, part: Any, *inputs: Any, **arguments: Any) -> Any:
    """Returns `part(*inputs, **arguments)`.

    Args:
        layer: the layer whose `call` this is.
        part: one of its sublayers.
        inputs: tensors.
        arguments: as `part` takes them.
    """
    return part(*inputs, **arguments)


def direct(layer_class: Any) -> Any:
    """Decorates a class of keras_vit whose `call` may stand for the layer, see `call_part`."""
    return layer_class
