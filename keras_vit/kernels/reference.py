"""Reference implementations of all kernels in `keras.ops`, which the fast forms are tested against.

The functions have no custom gradients, so that every derivative is correct: of any
order, in forward and reverse mode. `KERAS_VIT_KERNELS=reference` makes layers use this module.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

MOST_SCORES = 5 * 2**18
"""Most attention scores of one head (queries times keys) that a CPU holds in memory at a time.

A square image of 560 pixels has this number with patches of 16 pixels. An image of 1024 pixels has
thirteen times as many, and its scores are computed block by block.
"""


def choose_query_block(others: int) -> int:
    """Returns the number of queries per block, so that a block has at most `MOST_SCORES` scores."""
    return max(1, MOST_SCORES // others)


def normalise(x: Any, stages: tuple[tuple[int, ...], ...], epsilon: float) -> Any:
    """Returns `(x - mean) / sqrt(variance + epsilon)` over axes, in float32 at least.

    `stages` are the axes in the order in which means are taken, such as `((-1,),)`.

    Keras's norms use `ops.moments`, which treats the mean as a constant on TensorFlow: first
    derivatives are correct, second derivatives are off by a quarter.
    """
    x = ops.cast(x, at_least_float32(x))
    centred = x - _mean(x, stages)
    return centred * ops.rsqrt(_mean(ops.square(centred), stages) + epsilon)


def _mean(x: Any, stages: tuple[tuple[int, ...], ...]) -> Any:
    for axes in stages:
        if axes:
            x = ops.mean(x, axes, keepdims=True)
    return x


def at_least_float32(x: Any) -> str:
    """Returns the dtype in which a norm of `x` is computed."""
    return keras.backend.result_type(keras.backend.standardize_dtype(x.dtype), "float32")


def scaled(x: Any, gamma: Any, beta: Any, axes: list[int]) -> Any:
    """Returns `x * gamma + beta`; gamma and beta have the axes `axes` of `x`, or are None."""
    shape = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
    if gamma is not None:
        x = x * ops.cast(ops.reshape(gamma, shape), x.dtype)
    return x if beta is None else x + ops.cast(ops.reshape(beta, shape), x.dtype)


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Normalises the last axis: `(x - mean) / sqrt(variance + epsilon) * gamma + beta`.

    The arithmetic is float32 at least; the result has the dtype of `x`.
    """
    y = normalise(x, ((-1,),), epsilon)
    return ops.cast(y * ops.cast(gamma, y.dtype) + ops.cast(beta, y.dtype), x.dtype)


def gelu(x: Any, approximate: bool) -> Any:
    """Returns x Phi(x), or its approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    Args:
        x: a tensor of any shape.
        approximate: whether the approximation is computed.
    """
    return ops.gelu(x, approximate=approximate)


def linear(x: Any, kernel: Any, bias: Any, axes: int = 1) -> Any:
    """Computes a linear layer: the last axes of `x` times the first axes of `kernel`, plus bias.

    Args:
        x: a tensor `(..., *inputs)`.
        kernel: a tensor `(*inputs, *outputs)`.
        bias: a tensor `(*outputs)`, or None.
        axes: number of axes in `inputs`.

    Returns:
        A tensor `(..., *outputs)`.
    """
    y = ops.tensordot(x, kernel, axes)
    return y if bias is None else y + bias


def attention(query: Any, key: Any, value: Any, bias: Any = None) -> Any:
    """Returns softmax(q k^T / sqrt(head_dim) + bias) v (Eqs. 6 and 7), with a float32 softmax.

    Args:
        query: a tensor `(batch, tokens, heads, head_dim)`.
        key, value: tensors `(batch, others, heads, head_dim)`.
        bias: a float32 tensor `(batch or 1, heads or 1, tokens or 1, others)` that is added to the
            scores, or None.

    Returns:
        A tensor `(batch, tokens, heads, head_dim)`.
    """
    weights = attention_weights(query, key, bias)
    return ops.einsum("bhqk,bkhd->bqhd", ops.cast(weights, value.dtype), value)


def attention_weights(query: Any, key: Any, bias: Any = None) -> Any:
    """Returns the softmax of Eq. 6, float32 `(batch, heads, tokens, others)`; see `attention`."""
    query = query / query.shape[-1] ** 0.5
    if keras.backend.standardize_dtype(query.dtype) == "float16":  # scores may exceed its range
        query, key = (ops.cast(x, "float32") for x in (query, key))
    scores = ops.einsum("bqhd,bkhd->bhqk", query, key)
    scores = ops.cast(scores, at_least_float32(scores))
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    return ops.softmax(scores, axis=-1)


def rotate(x: Any, table: Any, neighbours: bool) -> Any:
    """Rotates every pair of channels (a, b) by its angle: (a cos - b sin, b cos + a sin).

    The arithmetic is float32 at least; the result has the dtype of `x`.

    Args:
        x: queries or keys, `(batch, tokens, heads, head_dim)`.
        table: cosines and sines of each channel's pair, `(2, tokens, heads or 1, head_dim)`.
        neighbours: whether the channels of a pair are neighbours, instead of half a head apart.
    """
    exact = ops.cast(x, at_least_float32(x))
    table = ops.cast(table, exact.dtype)
    if neighbours:
        pairs = ops.reshape(exact, (*ops.shape(exact)[:-1], x.shape[-1] // 2, 2))
        turned = ops.stack([-pairs[..., 1], pairs[..., 0]], axis=-1)
        turned = ops.reshape(turned, ops.shape(exact))
    else:
        first, second = ops.split(exact, 2, axis=-1)
        turned = ops.concatenate([-second, first], axis=-1)
    return ops.cast(exact * table[0] + turned * table[1], x.dtype)


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """Returns a function that keeps only its inputs for the gradient, and then runs again.

    Args:
        function: a function of tensors.
        layer: the layer whose weights `function` reads.
    """
    return keras.remat(function)


def patches(x: Any, kernel: Any) -> Any:
    """Projects the patches of images to tokens.

    Args:
        x: images `(batch, height, width, channels)`; rows and columns of pixels at the end that
            fill no patch are cropped.
        kernel: a tensor `(patch_height, patch_width, channels, hidden_size)`.

    Returns:
        A tensor `(batch, height // patch_height, width // patch_width, hidden_size)`.
    """
    size = tuple(kernel.shape[:2])
    return ops.conv(x, kernel, strides=size, padding="valid", data_format="channels_last")


def uniform(shape: tuple[int, ...], limit: float, seed: Any) -> Any:
    """Draws float32 values from [-limit, limit); `seed` is an int or a `SeedGenerator`."""
    return keras.random.uniform(shape, -limit, limit, dtype="float32", seed=seed)


def tensor(x: Any, dtype: str | None = None) -> Any:
    """Converts a weight or a tensor to a tensor, of type `dtype` unless that is None."""
    x = ops.convert_to_tensor(x)
    return x if dtype is None else ops.cast(x, dtype)
