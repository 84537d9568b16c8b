"""Imports torch: matrix products by oneDNN, forward and backward, where the processor asks for it.

torch computes float32 products on CPUs by MKL, which takes a slow path on AMD processors.
`torch.ops.mkldnn._linear_pointwise`, the operation by which torch's own compiler calls oneDNN,
takes a weight as it is. A weight that oneDNN has rearranged would be 7 % faster, but it is a second
copy of all weights, which an assignment to `weight.data` makes stale without a trace.

`keras_vit.processor.products_of_torch` states when oneDNN is used. torch's own product remains
where torch needs more than a value and a gradient (compilers, exporters, autocast, `torch.func`,
forward mode), on other devices and types, and where the private operation is missing or changed.
"""

from typing import Any

import torch

from keras_vit.processor import products_of_torch

_SCHEMA = (
    "mkldnn::_linear_pointwise(Tensor X, Tensor W, Tensor? B, str attr, Scalar?[] scalars, "
    "str? algorithm) -> Tensor Y"
)
_TYPES = (torch.float32, torch.bfloat16)


def _operation() -> Any:
    """Returns torch's operation with the expected signature, or None."""
    try:
        found = torch.ops.mkldnn._linear_pointwise.default
        usable = torch.backends.mkldnn.is_available() and str(found._schema) == _SCHEMA
    except (AttributeError, RuntimeError):
        return None
    return found if usable else None


_linear: Any = _operation() if products_of_torch()[0] == "onednn" else None


def are_chosen() -> bool:
    """Whether oneDNN computes products in this process."""
    return _linear is not None


def product(rows: Any, matrix: Any, bias: Any) -> Any:
    """Returns `rows @ matrix + bias` by oneDNN, or by torch where oneDNN cannot.

    Args:
        rows: a tensor `(rows, inputs)`.
        matrix: a tensor `(inputs, outputs)`.
        bias: a tensor `(outputs,)`, or None.
    """
    if _linear is not None and _is_for_onednn(rows, matrix, bias):
        needs_gradient = torch.is_grad_enabled() and (
            rows.requires_grad or matrix.requires_grad or (bias is not None and bias.requires_grad)
        )
        form = _Product.apply if needs_gradient else _product
        return form(rows, matrix, bias)
    return plain(rows, matrix, bias)


def plain(rows: Any, matrix: Any, bias: Any) -> Any:
    """Returns `rows @ matrix + bias` by torch, which has derivatives of every kind."""
    return rows @ matrix if bias is None else torch.addmm(bias, rows, matrix)


def _is_for_onednn(rows: Any, matrix: Any, bias: Any) -> bool:
    """Whether the tensors suit oneDNN, and no mode of torch wants to see torch's own operation."""
    return (
        rows.device.type == "cpu"
        and rows.dtype in _TYPES
        and matrix.dtype == rows.dtype
        and (bias is None or bias.dtype == rows.dtype)
        and rows.numel() > 0
        and matrix.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._len_torch_dispatch_stack()  # such as a counter of FLOPs
    )


def _product(rows: Any, matrix: Any, bias: Any) -> Any:
    return _linear(rows, matrix.T, bias, "none", [], "")


class _Product(torch.autograd.Function):
    """The product with both products of its gradient by oneDNN."""

    @staticmethod
    def forward(ctx: Any, rows: Any, matrix: Any, bias: Any) -> Any:
        ctx.save_for_backward(rows, matrix)
        return _product(rows, matrix, bias)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        rows, matrix = ctx.saved_tensors
        wants_rows, wants_matrix, wants_bias = ctx.needs_input_grad
        by = torch.mm if torch.is_grad_enabled() else _by_onednn  # `mm` has a second derivative
        return (
            by(dy, matrix.T) if wants_rows else None,
            by(rows.T, dy) if wants_matrix else None,
            dy.sum(0) if wants_bias else None,
        )


def _by_onednn(left: Any, right: Any) -> Any:
    return _linear(left, right.T, None, "none", [], "")
