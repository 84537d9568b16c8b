"""Imports tensorflow: matrix products with a bias, attention in blocks, and remat."""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_vit.keras_fixes import recompute_grad
from keras_vit.kernels import reference

call_part = reference.call_part
call_then_gelu = reference.call_then_gelu
direct = reference.direct
int8_linear = reference.int8_linear
tensor = reference.tensor
gelu = reference.gelu
layer_norm = reference.layer_norm
uniform = reference.uniform


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """See `reference.remat`."""
    return recompute_grad.remat(function)


def linear(x: Any, kernel: Any, bias: Any, axes: int = 1) -> Any:
    """See `reference.linear`. Keras's tensordot transposes first, and adds the bias separately."""
    inputs, outputs = kernel.shape[:axes], kernel.shape[axes:]
    leading, static = tf.shape(x)[:-axes], x.shape[:-axes]
    rows = tf.reshape(x, (-1, math.prod(inputs)))
    y = tf.matmul(rows, tf.reshape(kernel, (math.prod(inputs), -1)))
    if bias is not None:
        y = tf.nn.bias_add(y, tf.reshape(bias, (-1,)))
    y = tf.reshape(y, tf.concat([leading, outputs], 0))
    y.set_shape([*static, *outputs])
    return y


def attention(query: Any, key: Any, value: Any) -> Any:
    """See `reference.attention`. Many tokens are computed block by block."""
    tokens, others = query.shape[1], key.shape[1]
    if tokens is None or others is None or tokens * others <= reference.MOST_SCORES:
        return reference.attention(query, key, value)
    size = reference.block_of_queries(others)
    attend = recompute_grad.remat(reference.attention)  # keeps no scores for the gradient
    done: list[Any] = []
    for start in range(0, tokens, size):
        with tf.control_dependencies(done[-1:]):
            done.append(attend(query[:, start : start + size], key, value))
    return tf.concat(done, axis=1)
