"""PyTorch kernels for CPUs: matrix products by oneDNN, forward and backward.

torch computes float32 products on CPUs with MKL, which takes a slow path on AMD processors, and a
GELU in a separate pass. `torch.ops.mkldnn._linear_pointwise`, with which torch's own compiler calls
oneDNN, takes a weight as it is and applies a GELU in the same pass. `kept` lets oneDNN
rearrange bfloat16 weights for the inference function; in float32 that gains 2 to 7 %, too little
for a second copy of all weights. Programs of `torch.compile` call the operation through
`torch_compiled`.

`support.processor.choose_products` decides when oneDNN is used. torch's own product is used
if torch needs more than a value and a gradient (compilers, exporters, autocast, `torch.func`,
forward mode), on other devices and types, and if the private operation is missing or changed.
"""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from keras_vit.support.fixes import torch_stacks
from keras_vit.support.fixes.private_names import fallback
from keras_vit.support.processor import choose_products, processor

_SCHEMA = (
    "mkldnn::_linear_pointwise(Tensor X, Tensor W, Tensor? B, str attr, Scalar?[] scalars, "
    "str? algorithm) -> Tensor Y"
)
TYPES = (torch.float32, torch.bfloat16)
"""The dtypes whose products oneDNN computes."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)


_LARGEST_FOR_GELU = 2**20
"""Most values of a matrix for which oneDNN is as fast as MKL on Intel (benchmarks/decisions.md).

oneDNN reads a matrix `(inputs, outputs)` column by column. On a Xeon it takes as long as MKL for
512 to 2,048, but 1.4 times as long for 640 to 2,560 and 1.9 times for 768 to 3,072.
"""


def _operation() -> Any:
    """Returns torch's operation if it has the expected signature, or else None."""
    if not torch.backends.mkldnn.is_available():
        return None
    with contextlib.suppress(AttributeError, RuntimeError):
        operation = torch.ops.mkldnn._linear_pointwise.default
        if str(operation._schema) == _SCHEMA:
            return operation
    return fallback("torch.ops.mkldnn._linear_pointwise", None, "torch computes all products")


_choice = choose_products()[0]
_linear: Any = _operation() if _choice == "onednn" else None
_linear_gelu: Any = _operation() if _choice in ("onednn", "gelu") else None
"""The operation for all products, and for products with a GELU; None for torch's own."""
_rearrange: Any = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None) or fallback(
    "torch.ops.mkldnn._reorder_linear_weight", None, "oneDNN reads weights of bfloat16 as they lie"
)
_attends = _linear is not None and torch_stacks.are_float32()
"""Whether oneDNN also computes the products of attention."""
_FEWEST_SCORES, _MOST_SCORES = 2**14, 2**20
"""Scores per head. For fewer, as with 50 tokens, torch's fused attention is faster. Of more, oneDNN
computes this many at a time, so that they stay in the cache between two operations."""


def _count_operations(rows: Any, matrix: Any, *others: Any, **options: Any) -> int:
    """Returns the number of operations of a product, for torch's FLOP counter."""
    return 2 * math.prod(rows) * matrix[0]  # `matrix` is (outputs, inputs)


if _operation() is not None:
    with contextlib.suppress(RuntimeError):  # already registered when keras_vit is reimported
        register_flop_formula(torch.ops.mkldnn._linear_pointwise)(_count_operations)


def is_transformed() -> bool:
    """Whether `torch.func` or forward mode is active; True if torch lacks the private names.

    These transforms need more than the value and the gradient of an operation. torch has only
    private functions that tell whether they are active.
    """
    return bool(_transforms_are_active() or getattr(forward_ad, "_current_level", 0) >= 0)


_BY_REFERENCE = "plain operations compute attention, norms and GELU, slower"
_transforms_are_active = getattr(torch._C, "_are_functorch_transforms_active", None) or fallback(
    "torch._C._are_functorch_transforms_active", lambda: True, _BY_REFERENCE
)
if not hasattr(forward_ad, "_current_level"):
    fallback("torch.autograd.forward_ad._current_level", None, _BY_REFERENCE)


def are_chosen() -> bool:
    """Whether oneDNN computes all products in this process."""
    return _linear is not None


def product(rows: Any, matrix: Any, bias: Any) -> Any:
    """Returns `rows @ matrix + bias` by oneDNN, or by torch if oneDNN does not support it.

    Args:
        rows: a tensor `(rows, inputs)`.
        matrix: a tensor `(inputs, outputs)`.
        bias: a tensor `(outputs,)`, or None.
    """
    if _linear is not None and _is_for_onednn(rows, matrix, bias) and _lies_dense(matrix):
        form = _Product.apply if needs_gradient(rows, matrix, bias) else _product
        return form(rows, matrix, bias)
    return plain(rows, matrix, bias)


def value(rows: Any, matrix: Any, bias: Any) -> Any:
    """Returns `rows @ matrix + bias` without a gradient, for tensors of one of `TYPES`."""
    if _linear is None or not rows.numel() or not matrix.numel():
        return plain(rows, matrix, bias)
    return _product(rows, matrix if _lies_dense(matrix) else matrix.contiguous(), bias)


def product_then_gelu(rows: Any, matrix: Any, bias: Any, approximate: bool) -> Any:
    """Returns `gelu(rows @ matrix + bias)` in one pass of oneDNN, or None if unsupported.

    The result has no gradient, which would need the product before the GELU; the pass does not keep
    it. If oneDNN computes only these products, large matrices are left to torch, see
    `_LARGEST_FOR_GELU`.
    """
    if _linear_gelu is None or not _is_for_onednn(rows, matrix, bias) or not _lies_dense(matrix):
        return None
    if _linear is None and matrix.numel() > _LARGEST_FOR_GELU:
        return None
    return _linear_gelu(rows, matrix.T, bias, "gelu", [], "tanh" if approximate else "none")


class KeptProduct:
    """Computes `rows @ matrix + bias` for many calls in inference; `kept` makes it.

    Args:
        matrix: tensor `(outputs, inputs)`, possibly rearranged by oneDNN.
        bias: tensor `(outputs,)`, or None.
        by_onednn: whether oneDNN multiplies, rather than torch.
        is_copy: whether the tensors are copies of the weights.
    """

    def __init__(self, matrix: Any, bias: Any, by_onednn: bool, is_copy: bool) -> None:
        self._matrix, self._bias = matrix, bias
        self.by_onednn, self.is_copy = by_onednn, is_copy

    def __call__(self, rows: Any) -> Any:
        """Returns the product, `(rows, outputs)`."""
        if self.by_onednn:
            return _linear_gelu(rows, self._matrix, self._bias, "none", [], "")
        return torch.nn.functional.linear(rows, self._matrix, self._bias)

    def then_gelu(self, rows: Any, approximate: bool) -> Any:
        """Returns the GELU of the product, in one pass of oneDNN."""
        form = "tanh" if approximate else "none"
        return _linear_gelu(rows, self._matrix, self._bias, "gelu", [], form)


def kept(matrices: Sequence[Any], biases: Sequence[Any], dtype: Any) -> KeptProduct | None:
    """Returns the product with constant weights, or None if that would not be faster.

    Usually the product refers to the weights themselves. In bfloat16, if the processor multiplies
    it, the product holds copies that oneDNN has rearranged: this is 1.1 times as fast on an AMD
    EPYC, and float32 weights need no cast in each call.

    Args:
        matrices: tensors `(inputs, outputs)`. The products with several are concatenated, which
            needs copies.
        biases: a tensor `(outputs,)` or None for each matrix.
        dtype: type of the product.
    """
    rows = [matrix.T for matrix in matrices]
    is_on_cpu = rows[0].device.type == "cpu"
    is_fast = dtype == torch.bfloat16 and processor().multiplies_bfloat16
    if is_on_cpu and is_fast and _linear_gelu is not None and _rearrange is not None:
        pairs = zip(rows, biases, strict=True)
        bias = torch.cat([x.new_zeros(len(x)) if each is None else each for x, each in pairs])
        matrix = _rearrange(torch.cat(rows).to(dtype))
        return KeptProduct(matrix, bias.to(dtype), by_onednn=True, is_copy=True)
    if len(rows) > 1 or rows[0].dtype != dtype:
        return None
    by_onednn = is_on_cpu and _linear is not None and dtype in TYPES and _lies_dense(rows[0])
    return KeptProduct(rows[0], biases[0], by_onednn, is_copy=False)


def attention(query: Any, key: Any, value: Any, bias: Any) -> Any:
    """Returns attention by oneDNN's products, or None if torch's fused attention should be used.

    oneDNN is used if it computes all products, for many tokens in float32 without a gradient:
    1.3 to 1.5 times as fast as MKL on an AMD EPYC, for 197 to 1,370 tokens.

    Args:
        query: a tensor `(batch, tokens, heads, head_dim)`.
        key, value: tensors `(batch, others, heads, head_dim)`.
        bias: a tensor of this type that is added to the scores `(batch, heads, tokens, others)`,
            or None.
    """
    batch, tokens, heads, head_dim = query.shape
    others = key.shape[1]
    suits = _attends and query.dtype == torch.float32 and tokens * others >= _FEWEST_SCORES
    if not suits or not _is_for_onednn(query, key, value):
        return None
    if needs_gradient(query, key, value, bias):
        return None
    bias = None if bias is None else bias.expand(batch, heads, tokens, others)
    examples = torch.arange(batch * heads, device=query.device)
    q, k, v = (x.transpose(1, 2).reshape(batch * heads, -1, head_dim) for x in (query, key, value))
    k, y = k.transpose(1, 2), torch.empty_like(q)
    rows = max(1, min(tokens, _MOST_SCORES // others))
    count = max(1, _MOST_SCORES // (rows * others))
    with torch_stacks.by_onednn() as is_onednn:
        if not is_onednn:
            return None
        for first in range(0, batch * heads, count):
            stack = slice(first, first + count)
            for row in range(0, tokens, rows):
                some = q[stack, row : row + rows]
                scores = q.new_empty(*some.shape[:2], others)
                torch.baddbmm(scores, some, k[stack], beta=0, alpha=head_dim**-0.5, out=scores)
                if bias is not None:
                    which = examples[stack]
                    scores += bias[which // heads, which % heads, row : row + rows]
                torch.softmax(scores, -1, out=scores)
                torch.bmm(scores, v[stack], out=y[stack, row : row + rows])
    return y.view(batch, heads, tokens, head_dim).transpose(1, 2)


def plain(rows: Any, matrix: Any, bias: Any) -> Any:
    """Returns `rows @ matrix + bias` by torch, which has derivatives of every kind."""
    return rows @ matrix if bias is None else torch.addmm(bias, rows, matrix)


def fused_attention(query: Any, key: Any, value: Any, bias: Any) -> Any:
    """Returns attention by torch's fused form, with the arguments of `attention`."""
    heads_first = [x.transpose(1, 2) for x in (query, key, value)]
    fused = torch.nn.functional.scaled_dot_product_attention
    return fused(*heads_first, attn_mask=bias).transpose(1, 2)


def needs_gradient(*tensors: Any) -> bool:
    """Whether a result computed from the tensors has a gradient; ignores None."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _is_for_onednn(first: Any, second: Any, third: Any) -> bool:
    return (
        first.device.type == "cpu"
        and type(first) in _PLAIN  # a subclass of torch.Tensor may not support the operation
        and type(second) in _PLAIN
        and first.dtype in TYPES
        and second.dtype == first.dtype
        and (third is None or (type(third) in _PLAIN and third.dtype == first.dtype))
        and first.numel() > 0
        and second.numel() > 0
        and not torch.is_autocast_enabled("cpu")
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
        # `mm` has a second derivative, and torch's compiler, which may compile this, supports it.
        by = torch.mm if torch.is_grad_enabled() or torch.compiler.is_compiling() else _by_onednn
        return (
            by(dy, matrix.T) if wants_rows else None,
            by(rows.T, dy) if wants_matrix else None,
            dy.sum(0) if wants_bias else None,
        )


def _by_onednn(left: Any, right: Any) -> Any:
    right = right if _lies_dense(right) else right.contiguous()
    return _linear(left, right.T, None, "none", [], "")


def _lies_dense(matrix: Any) -> bool:
    """Whether rows or columns are contiguous in memory; oneDNN is very slow for other strides."""
    return bool(matrix.is_contiguous() or matrix.T.is_contiguous())
