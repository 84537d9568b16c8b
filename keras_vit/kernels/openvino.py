"""OpenVINO kernels: products, attention and norms as single operations, and a faster tanh GELU.

Keras's OpenVINO backend writes a `tensordot` as transposes, shapes and reshapes: ViT-S/16 compiles
to 1,420 operations with the reference, and to a third of that with these kernels
(`python -m benchmarks.kernels` has rows for each).
"""

import math
from typing import Any

import numpy as np
import openvino.opset16 as opset
from keras import ops

from keras_vit.kernels import reference
from keras_vit.support.processor import processor


def _node(x: Any) -> Any:
    return ops.convert_to_tensor(x).output


def _tensor(node: Any) -> Any:
    return ops.convert_to_tensor(node.output(0))


def linear(x: Any, kernel: Any, bias: Any, axes: int = 1) -> Any:
    """See `reference.linear`. A 0 in a shape of OpenVINO keeps the axis of the input."""
    inputs, outputs = kernel.shape[:axes], kernel.shape[axes:]
    leading = [0] * (len(x.shape) - axes)
    rows = x if axes == 1 else _reshaped(x, [*leading, math.prod(inputs)])
    matrix = _reshaped(kernel, [math.prod(inputs), math.prod(outputs)])
    y = _tensor(opset.matmul(_node(rows), _node(matrix), False, False))
    if bias is not None:
        y = _tensor(opset.add(_node(y), _node(_reshaped(bias, [math.prod(outputs)]))))
    return y if len(outputs) == 1 else _reshaped(y, [*leading, *outputs])


def _reshaped(x: Any, shape: list[int]) -> Any:
    return _tensor(opset.reshape(_node(x), opset.constant(np.array(shape)), True))


def attention(query: Any, key: Any, value: Any, bias: Any = None) -> Any:
    """See `reference.attention`. OpenVINO computes it in blocks, with a float32 softmax."""
    order = opset.constant(np.array([0, 2, 1, 3]))  # heads before tokens, and back
    operands = [opset.transpose(_node(x), order) for x in (query, key, value)]
    operands += [] if bias is None else [_node(ops.cast(bias, query.dtype))]
    return _tensor(opset.transpose(opset.scaled_dot_product_attention(*operands), order))


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """See `reference.layer_norm`."""
    dtype = x.dtype
    y = _node(ops.cast(x, reference.at_least_float32(x)))
    y = _tensor(opset.mvn(y, opset.constant(np.array([-1])), True, epsilon, "inside_sqrt"))
    return ops.cast(y * ops.cast(gamma, y.dtype) + ops.cast(beta, y.dtype), dtype)


_TANH_IS_SLOW = "avx512f" not in processor().flags


def gelu(x: Any, approximate: bool) -> Any:
    """See `reference.gelu`. The tanh form depends on the processor (benchmarks/decisions.md)."""
    if approximate and _TANH_IS_SLOW:
        return gelu_by_sigmoid(x)
    return reference.gelu(x, approximate)


def gelu_by_sigmoid(x: Any) -> Any:
    """Returns the tanh form of `gelu` as x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)).

    OpenVINO fuses these operations into one loop, which is faster than its own GELU on processors
    with AVX2, and slower on processors with AVX-512.
    """
    slope = 2 * math.sqrt(2 / math.pi)
    return x * ops.sigmoid(x * (x * x * (slope * 0.044715) + slope))
