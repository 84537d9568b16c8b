"""Imports tensorflow: products on matrices, with their bias, and attention in blocks."""

import math
from typing import Any

import tensorflow as tf

from keras_vit.kernels import reference

gelu = reference.gelu
layer_norm = reference.layer_norm
remat = reference.remat
uniform = reference.uniform
call_part = reference.call_part
direct = reference.direct


def linear(x: Any, kernel: Any, bias: Any, axes: int = 1) -> Any:
    """See `reference.linear`."""
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
    """See `reference.attention`. Many tokens attend one block after the other."""
    tokens, others = query.shape[1], key.shape[1]
    if tokens is None or others is None or tokens * others <= reference.MOST_SCORES:
        return reference.attention(query, key, value)
    size = reference.block_of_queries(others)
    attend = tf.recompute_grad(reference.attention)  # keeps no scores for the gradient
    done: list[Any] = []
    for start in range(0, tokens, size):
        with tf.control_dependencies(done[-1:]):
            done.append(attend(query[:, start : start + size], key, value))
    return tf.concat(done, axis=1)
