"""PyTorch kernels: fused attention and norm, a faster tanh GELU, remat without an autograd graph.

`python -m benchmarks.kernels` has rows for each form: on a CPU the norm saves three quarters of the
reference's time, attention a quarter to a half, the tanh GELU and the product a tenth.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
import torch

from keras_vit.kernels import reference, torch_compiled, torch_products
from keras_vit.kernels.sizes import is_known
from keras_vit.kernels.torch_products import is_transformed
from keras_vit.support.fixes import torch_checkpoint


def _plain_where_transformed(fast: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a fast form: the reference is used under `torch.func` and in forward mode.

    torch's fused operations and functions with custom gradients support neither tangents nor
    derivatives of every order.
    """
    plain = getattr(reference, fast.__name__)

    @functools.wraps(fast)
    def form(*arguments: Any, **options: Any) -> Any:
        is_plain = not torch.compiler.is_compiling() and is_transformed()
        return (plain if is_plain else fast)(*arguments, **options)

    return form


def _is_recorded() -> bool:
    """Whether a compiler or exporter traces the operations; it supports only torch's own."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


@_plain_where_transformed
def attention(query: Any, key: Any, value: Any, bias: Any = None) -> Any:
    """See `reference.attention`. Uses torch's fused attention, with heads first in any layout.

    The bias is cast to the type of the queries.
    """
    tensors = query, key, value, bias
    if bias is not None and bias.dtype != query.dtype:
        tensors = query, key, value, bias.clamp(min=torch.finfo(query.dtype).min).to(query.dtype)
    if not _is_recorded():
        y = torch_products.attention(*tensors)
        if y is not None:
            return y
    if torch_compiled.serve(*tensors) and not torch_products.needs_gradient(*tensors):
        return torch_compiled.attention(*tensors)
    if torch.onnx.is_in_onnx_export():
        return _attention_in_few_nodes(*tensors)
    y = torch_products.fused_attention(*tensors)
    if not y.requires_grad or _is_recorded():
        return y
    return _TwiceDifferentiable.apply(y, *tensors)


def _attention_in_few_nodes(query: Any, key: Any, value: Any, bias: Any) -> Any:
    """Returns attention as six nodes of ONNX; torch's exporter would write fifteen."""
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)
    scores = scores if bias is None else scores + bias
    return (scores.softmax(-1) @ value).transpose(1, 2)


class _TwiceDifferentiable(torch.autograd.Function):
    """The identity on attention's output, with a gradient that can be differentiated again.

    The gradient of torch's fused attention cannot be differentiated. A backward pass without
    `create_graph` uses it; with `create_graph` the gradient is computed from the formulas.
    """

    @staticmethod
    def forward(ctx: Any, y: Any, query: Any, key: Any, value: Any, bias: Any) -> Any:
        ctx.save_for_backward(query, key, value, bias)
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        if not torch.is_grad_enabled():
            return dy, None, None, None, None
        query, key, value, bias = ctx.saved_tensors
        weights = reference.attention_weights(query, key, bias).to(value.dtype)
        dvalue = torch.einsum("bhqk,bqhd->bkhd", weights, dy)
        dweights = torch.einsum("bqhd,bkhd->bhqk", dy, value)
        dscores = weights * (dweights - (weights * dweights).sum(-1, keepdim=True))
        dbias = None if bias is None else dscores.sum_to_size(bias.shape)
        dscores = dscores / query.shape[-1] ** 0.5
        dquery = torch.einsum("bhqk,bkhd->bqhd", dscores, key)
        dkey = torch.einsum("bhqk,bqhd->bkhd", dscores, query)
        return None, dquery, dkey, dvalue, dbias


@_plain_where_transformed
def rotate(x: Any, table: Any, neighbours: bool) -> Any:
    """See `reference.rotate`. In inference it writes a single array, the result.

    Its memory layout is heads, tokens, channels, for which torch's attention on CPUs is fastest.
    """
    has_gradient = torch.is_grad_enabled() and (x.requires_grad or table.requires_grad)
    if has_gradient or x.dtype != table.dtype or _is_recorded():
        return reference.rotate(x, table, neighbours)
    cosines, sines = table
    batch, tokens, heads, head_dim = x.shape
    y = x.new_empty(batch, heads, tokens, head_dim).transpose(1, 2)
    torch.mul(x, cosines, out=y)
    half = head_dim // 2
    pair = slice(0, None, 2), slice(1, None, 2)
    first, second = pair if neighbours else (slice(half), slice(half, None))
    y[..., first].addcmul_(x[..., second], sines[..., first], value=-1)
    y[..., second].addcmul_(x[..., first], sines[..., second])
    return y


@_plain_where_transformed
def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """See `reference.layer_norm`. On CPUs torch's norm computes 16-bit inputs in 32 bits."""
    if torch.jit.is_tracing():  # a traced shape consists of tensors, which torch's norm refuses
        return reference.layer_norm(x, gamma, beta, epsilon)
    dtype = torch.promote_types(x.dtype, torch.float32)
    gamma, beta = gamma.to(dtype), beta.to(dtype)
    inner = x if x.device.type == "cpu" else x.to(dtype)
    y = torch.nn.functional.layer_norm(inner, x.shape[-1:], gamma, beta, epsilon)
    return y.to(x.dtype)


@_plain_where_transformed
def gelu(x: Any, approximate: bool) -> Any:
    """See `reference.gelu`. A compiler generates its own loop from torch's GELU."""
    is_slow = approximate and x.dtype in _SLOW_TANH and x.device.type == "cpu"
    if is_slow and not _is_recorded():
        return _Gelu.apply(x)
    return torch.nn.functional.gelu(x, approximate="tanh" if approximate else "none")


_SLOW_TANH = (torch.float32, torch.bfloat16)
_SLOPE = 2 * math.sqrt(2 / math.pi)
_PIECE = 2**18
"""Values per chunk, so few that they stay in a core's cache between two operations."""


class _Gelu(torch.autograd.Function):
    """0.5 x (1 + tanh(u)) = x sigmoid(2 u), with torch's own gradient.

    torch's tanh takes three exponentials on a CPU, its sigmoid one.
    """

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return _write_gelu(x, torch.empty_like(x, memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return torch.ops.aten.gelu_backward(dy, *ctx.saved_tensors, approximate="tanh")


def _write_gelu(x: Any, y: Any) -> Any:
    """Writes x sigmoid(2 u) to `y`, a contiguous tensor, which may be `x`; returns `y`."""
    slope, gates = x.new_full((), _SLOPE), x.new_empty(min(_PIECE, x.numel()))
    pieces = zip(x.reshape(-1).split(_PIECE), y.view(-1).split(_PIECE), strict=True)
    for inputs, outputs in pieces:
        gate = gates[: inputs.numel()]
        torch.addcmul(slope, inputs, inputs, value=0.044715 * _SLOPE, out=gate)
        torch.mul(inputs, gate.mul_(inputs).sigmoid_(), out=outputs)
    return y


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """See `reference.remat`. Under `torch.func` the function keeps its activations instead."""
    again = torch_checkpoint.remat(function, layer)

    def run(*inputs: Any) -> Any:
        return function(*inputs) if is_transformed() else again(*inputs)

    return torch.compiler.disable(run)


def linear(x: Any, kernel: Any, bias: Any, axes: int = 1) -> Any:
    """See `reference.linear`. An exported graph keeps leading axes instead of reshaping them."""
    inputs, outputs = kernel.shape[:axes], kernel.shape[axes:]
    matrix = kernel if kernel.ndim == 2 else kernel.reshape(math.prod(inputs), -1)
    if torch.compiler.is_exporting():
        bias = None if bias is None else bias.reshape(-1)
        rows = x if axes == 1 else _with_last(x, axes, math.prod(inputs))
        y = torch.nn.functional.linear(rows, matrix.T, bias)
        return y if len(outputs) == 1 else _with_last(y, 1, *outputs)
    rows = x.reshape(-1, matrix.shape[0])
    bias = bias if bias is None or bias.ndim == 1 else bias.reshape(-1)
    if torch_compiled.serve(rows, matrix, bias):
        y = torch_compiled.product(rows, matrix, bias)
    elif _is_recorded() or is_transformed():
        y = torch_products.plain(rows, matrix, bias)
    else:
        y = torch_products.product(rows, matrix, bias)
    return y.reshape(x.shape[: x.ndim - axes] + outputs)


def patches(x: Any, kernel: Any) -> Any:
    """See `reference.patches`. A matrix product, because torch's convolution has another layout.

    For a convolution, Keras transposes the kernel in every call, and its gradient back: half of the
    time for patches of 16 pixels, five sixths for one image in patches of 32
    (`benchmarks.kernels`).
    """
    height, width, channels, hidden_size = kernel.shape
    if _is_recorded() or x.shape[1] < height or x.shape[2] < width:
        return reference.patches(x, kernel)
    batch, rows, columns = x.shape[0], x.shape[1] // height, x.shape[2] // width
    x = x[:, : rows * height, : columns * width]
    x = x.reshape(batch, rows, height, columns, width, channels).transpose(2, 3)
    size = height * width * channels
    return linear(x.reshape(batch, rows, columns, size), kernel.reshape(size, hidden_size), None)


def _with_last(x: Any, axes: int, *sizes: int) -> Any:
    """Reshapes the last `axes` of `x`; if only the batch is dynamic, to a constant shape."""
    leading = list(x.shape[: x.ndim - axes])
    if is_known(*leading[1:]):
        leading[0] = -1
    return x.reshape(*leading, *sizes)


def uniform(shape: tuple[int, ...], limit: float, seed: Any) -> Any:
    """See `reference.uniform`. Draws the same values without two temporary arrays.

    glibc before 2.38 does not reuse the memory of temporary arrays: a ViT-B with random weights
    took half as much memory again.
    """
    device = keras.ops.zeros(()).device
    if device.type == "meta":  # a tensor without values
        return reference.uniform(shape, limit, seed)
    first, second = seed.next() if isinstance(seed, keras.random.SeedGenerator) else (seed, 0)
    generator = torch.Generator(device).manual_seed(int(first + second) & 0xFFFFFFFF)
    return torch.rand(shape, generator=generator, device=device).mul_(2 * limit).sub_(limit)


def tensor(x: Any, dtype: str | None = None) -> Any:
    """See `reference.tensor`. Avoids the cost of Keras's conversions.

    ViT-S/16 converts two arrays in each of its 72 products, a measurable fraction of a
    forward pass at batch size 1 (`python -m benchmarks.kernels`, rows `tensor`).
    """
    if isinstance(x, keras.Variable):
        x = x.value
    elif not isinstance(x, torch.Tensor):
        return reference.tensor(x, dtype)
    return x if dtype is None else x.to(_DTYPES[dtype])


_DTYPES = {name: kind for name, kind in vars(torch).items() if isinstance(kind, torch.dtype)}


def linear_then_gelu(x: Any, kernel: Any, bias: Any, approximate: bool) -> Any:
    """Returns `gelu(linear(x, kernel, bias), approximate)`, in inference without a second array.

    oneDNN, if it is chosen, computes the GELU with the product (benchmarks/decisions.md).
    Otherwise the GELU overwrites its input. With a second array, glibc returned both to the system
    after each block of ViT-S/16 at batch 8, and the system cleared 220 MB in each forward pass, a
    tenth of its time (`python -m benchmarks.kernels`, rows `linear_then_gelu`).
    """
    is_needed = torch_products.needs_gradient(x, kernel, bias)
    if is_needed or x.device.type != "cpu" or is_transformed():
        return gelu(linear(x, kernel, bias), approximate)
    rows = x.reshape(-1, x.shape[-1])
    if torch_compiled.serve(rows, kernel, bias):
        y = torch_compiled.product_then_gelu(rows, kernel, bias, approximate)
    elif _is_recorded():
        return gelu(linear(x, kernel, bias), approximate)
    else:
        y = torch_products.product_then_gelu(rows, kernel, bias, approximate)
    if y is not None:
        return y.reshape(*x.shape[:-1], y.shape[-1])
    y = linear(x, kernel, bias)
    if approximate and y.dtype in _SLOW_TANH:
        return _write_gelu(y, y)
    return torch.ops.aten.gelu_(y, approximate="tanh" if approximate else "none")


def _keep_freed_memory() -> None:
    """Lets glibc keep up to 62 MB of freed arrays for the next operations.

    glibc returns the free end of its memory to the system when it is twice as large as the largest
    block that was mapped and freed, of at most 32 MB. The arrays of a block of ViT-S/16 with eight
    images were just above that, and the system cleared 60 to 230 MB again in each forward pass, 3
    to 12 % of its time. Therefore a block of this size is allocated and freed, unused
    (benchmarks/decisions.md). The user's `MALLOC_` variables take precedence.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8, device="cpu")


_keep_freed_memory()
