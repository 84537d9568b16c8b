"""PyTorch kernels for `torch.compile`: oneDNN's products as custom operators.

torch's compiler uses oneDNN only for constant weights, and MKL for all other products. With these
operators a compiled program uses the products of `torch_products`: values, gradients, and in
inference the fused GELU. Exporters get torch's own operations.
"""

from typing import Any

import torch
from torch import Tensor

from keras_vit.kernels import torch_products


def serve(*tensors: Any) -> bool:
    """Whether torch compiles a program, and the operators support its `tensors`; ignores None."""
    return (
        torch.compiler.is_compiling()
        and torch_products.are_chosen()
        and not torch.compiler.is_exporting()
        and not torch.is_autocast_enabled("cpu")
        and not torch_products.is_transformed()  # which the operators do not support
        and all(
            x is None or (x.device.type == "cpu" and x.dtype == tensors[0].dtype) for x in tensors
        )
        and tensors[0].dtype in torch_products.TYPES
    )


@torch.library.custom_op("keras_vit::product", mutates_args=(), device_types="cpu")
def product(rows: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """See `torch_products.product`."""
    return torch_products.value(rows, matrix, bias)


@torch.library.custom_op("keras_vit::product_then_gelu", mutates_args=(), device_types="cpu")
def product_then_gelu(
    rows: Tensor, matrix: Tensor, bias: Tensor | None, approximate: bool
) -> Tensor:
    """See `torch_products.product_then_gelu`; torch computes where oneDNN cannot."""
    y = torch_products.product_then_gelu(rows, matrix, bias, approximate)
    if y is None:
        y = torch_products.value(rows, matrix, bias)
        torch.ops.aten.gelu_(y, approximate="tanh" if approximate else "none")
    return y


@torch.library.custom_op("keras_vit::attention", mutates_args=(), device_types="cpu")
def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """See `torch_products.attention`; torch's fused attention computes where oneDNN cannot."""
    with torch.no_grad():
        y = torch_products.attention(query, key, value, bias)
    if y is None:
        y = torch_products.fused_attention(query, key, value, bias)
    return y.contiguous()


@product.register_fake
@product_then_gelu.register_fake
def _product_shape(rows: Any, matrix: Any, bias: Any, approximate: bool = False) -> Any:
    return rows.new_empty((rows.shape[0], matrix.shape[1]))


@attention.register_fake
def _attention_shape(query: Any, key: Any, value: Any, bias: Any) -> Any:
    return query.new_empty(query.shape)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])


def _gradients(ctx: Any, dy: Any) -> Any:
    rows, matrix = ctx.saved_tensors
    wants_rows, wants_matrix, wants_bias = ctx.needs_input_grad
    return (
        product(dy, matrix.T, None) if wants_rows else None,
        product(rows.T, dy, None) if wants_matrix else None,
        dy.sum(0) if wants_bias else None,
    )


product.register_autograd(_gradients, setup_context=_keep)
