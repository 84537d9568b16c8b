"""JAX kernels: matrix products; for CPUs layer norm and attention with custom derivatives, remat.

With autodiff's gradient of a layer norm, a whole ViT-S/16 takes a third longer: XLA's CPU compiler
fuses it into the gradients of all earlier blocks and computes the gradient of the residual stream
repeatedly (benchmarks/decisions.md). The tangents here are one expression of the saved mean and
deviation, so that nothing is computed twice. The custom attention saves a seventh of a forward
pass, and a fifth of a gradient's memory. Both support forward and reverse mode of every order.
Accelerators use the plain forms. `python -m benchmarks.kernels` has a row for each.

The form is chosen by the platform that a program is lowered for, not by the machine that traces it:
a program that is exported for CUDA or TPUs on a CPU (`jax.export`) is the same as one that is
traced on CUDA or TPUs. `benchmarks/lowered.py` reads such programs.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from keras_vit.kernels import reference
from keras_vit.kernels.sizes import is_known
from keras_vit.support.fixes import xla_on_cpus


def gelu(x: Any, approximate: bool) -> Any:
    """See `reference.gelu`. With many tokens on CPUs, XLA is kept from fusing the result.

    This halves the memory of two blocks of ViT-B/16 at 1024 pixels (`python -m benchmarks.kernels`,
    row `gelu`).
    """
    y = reference.gelu(x, approximate)
    tokens = x.shape[1] if x.ndim > 2 else 1
    if not is_known(tokens) or tokens**2 <= reference.MOST_SCORES:
        return y
    return jax.lax.platform_dependent(
        y, cpu=xla_on_cpus.kept_out_of_fusions, default=lambda plain: plain
    )


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """See `reference.remat`."""
    return xla_on_cpus.remat(function)


def linear(x: Any, kernel: Any, bias: Any, axes: int = 1) -> Any:
    """See `reference.linear`. The kernel is reshaped to a matrix for the product and its gradients.

    With a kernel of three axes, XLA's CPU compiler transposes the kernel for the gradient of `x`,
    and returns the gradient of the kernel in another memory layout than the weight's.
    """
    is_narrow = x.dtype == kernel.dtype == jnp.bfloat16
    if kernel.ndim == 2 and not is_narrow:
        return reference.linear(x, kernel, bias)
    inputs, outputs = math.prod(kernel.shape[:axes]), kernel.shape[axes:]
    rows = x if axes == 1 else x.reshape(*x.shape[: x.ndim - axes], inputs)
    matrix = kernel.reshape(inputs, -1)
    if is_narrow:
        y = _product(rows.reshape(-1, inputs), matrix).reshape(*rows.shape[:-1], -1)
    else:
        y = rows @ matrix
    if bias is not None:
        y = y + bias.reshape(-1)
    return y.reshape(*y.shape[:-1], *outputs)


@functools.partial(jax.jit, static_argnames="epsilon", inline=True)  # blocks share one trace
def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """See `reference.layer_norm`."""
    forms = _layer_norm_on_cpus, reference.layer_norm
    on_cpus, elsewhere = (functools.partial(form, epsilon=epsilon) for form in forms)
    return jax.lax.platform_dependent(x, gamma, beta, cpu=on_cpus, default=elsewhere)


def _layer_norm_on_cpus(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    y = x.astype(reference.at_least_float32(x))
    return _layer_norm(y, gamma.astype(y.dtype), beta.astype(y.dtype), epsilon).astype(x.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    return _normal_and_inverse(x, epsilon)[0] * gamma + beta


@_layer_norm.defjvp
def _(epsilon: float, inputs: Any, tangents: Any) -> Any:
    (x, gamma, beta), (dx, dgamma, dbeta) = inputs, tangents
    normal, inverse = _normal_and_inverse(x, epsilon)
    dx = inverse * dx  # first, so that the gradient of `x` is scaled last
    inner = (normal * dx).mean(-1, keepdims=True)
    dnormal = dx - dx.mean(-1, keepdims=True) - normal * inner
    return normal * gamma + beta, dnormal * gamma + normal * dgamma + dbeta


def _normal_and_inverse(x: Any, epsilon: float) -> tuple[Any, Any]:
    centred = x - x.mean(-1, keepdims=True)
    inverse = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon)
    return centred * inverse, inverse


@functools.partial(jax.jit, inline=True)
def attention(query: Any, key: Any, value: Any, bias: Any = None) -> Any:
    """See `reference.attention`. Accelerators use cuDNN's kernel or XLA's own code."""
    plain = jax.nn.dot_product_attention
    on_cuda = _by_cudnn if bias is None and _suits_cudnn(query, key) else plain
    return jax.lax.platform_dependent(
        query, key, value, bias, cpu=_attention_on_cpus, cuda=on_cuda, default=plain
    )


def _suits_cudnn(query: Any, key: Any) -> bool:
    """Whether cuDNN's attention supports the arrays on the GPU of this machine."""
    in_16_bits = query.dtype in (jnp.bfloat16, jnp.float16)
    is_legal = in_16_bits and query.shape[-1] % 8 == 0 and query.shape[-1] <= 128
    return is_legal and is_known(*query.shape, *key.shape) and _has_ampere()


def _has_ampere() -> bool:
    """Whether the GPU has compute capability 8.0 or higher, which cuDNN's attention needs."""
    if jax.default_backend() != "gpu":
        return False
    major = getattr(jax.local_devices()[0], "compute_capability", "").partition(".")[0]
    return major.isdecimal() and int(major) >= 8  # ROCm devices have other names


def _by_cudnn(query: Any, key: Any, value: Any, bias: None = None) -> Any:
    """Returns attention by cuDNN's kernel, which does not store the scores.

    JAX 0.10.2 refuses the gradient for an odd number of tokens, such as the 197 of an image of 224
    pixels; in this case one padding token is added, which cuDNN masks.
    """
    attend = functools.partial(jax.nn.dot_product_attention, implementation="cudnn")
    batch, tokens = query.shape[:2]
    others = key.shape[1]
    if tokens % 2 == others % 2 == 0:
        return attend(query, key, value)
    even = (jnp.pad(x, [(0, 0), (0, x.shape[1] % 2), (0, 0), (0, 0)]) for x in (query, key, value))
    lengths = [jnp.full(batch, count, "int32") for count in (tokens, others)]
    y = attend(*even, query_seq_lengths=lengths[0], key_value_seq_lengths=lengths[1])
    return y[:, :tokens]


def _attention_on_cpus(query: Any, key: Any, value: Any, bias: Any) -> Any:
    # (batch, heads, tokens, head_dim)
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    batch, heads, tokens, _ = query.shape
    others = key.shape[2]
    many = is_known(tokens, others) and tokens * others > reference.MOST_SCORES
    attend = _in_blocks if many else _attention
    large = is_known(batch, tokens, others) and batch * heads * tokens * others > _KEPT_SCORES
    if large and batch > 1 and jax.device_count() == 1:  # else every device runs the whole loop
        attend = functools.partial(_by_image, _in_blocks if many else jax.checkpoint(_attention))
    return jnp.swapaxes(attend(query, key, value, bias), 1, 2)


_KEPT_SCORES = 2**23
"""Most scores of a batch whose memory glibc keeps for reuse; it frees larger arrays."""


def _by_image(attend: Callable[..., Any], query: Any, key: Any, value: Any, bias: Any) -> Any:
    """Returns attention, computed image by image without storing scores for the gradient.

    Otherwise the system clears new memory for each large array of scores, which takes more than
    half of the time of attention (benchmarks/decisions.md).
    """
    shared = bias is None or bias.shape[0] == 1  # one bias for all images
    images = (query, key, value) if shared else (query, key, value, bias)

    def one(image: Any) -> Any:
        arrays = [x[None] for x in image]
        return attend(*arrays, bias)[0] if shared else attend(*arrays)[0]

    return jax.lax.map(one, images)


def _in_blocks(query: Any, key: Any, value: Any, bias: Any) -> Any:
    """Returns attention in blocks of queries; each block is recomputed for the gradient."""
    batch, heads, tokens, head_dim = query.shape
    count = -(-tokens // reference.choose_query_block(key.shape[2]))
    size = -(-tokens // count)  # equal blocks need the least padding

    def split(x: Any) -> Any:
        """Splits an array with one row per query into blocks."""
        x = jnp.pad(x, [(0, 0), (0, 0), (0, count * size - tokens), (0, 0)])
        return jnp.moveaxis(x.reshape(*x.shape[:2], count, size, x.shape[3]), 2, 0)

    if bias is None or bias.shape[2] == 1:  # one row for all queries
        blocks: Any = (split(query),)
        attend = jax.checkpoint(lambda block: _attention(*block, key, value, bias))
    else:
        blocks = split(query), split(bias)
        attend = jax.checkpoint(lambda block: _attention(block[0], key, value, block[1]))
    done = jnp.moveaxis(jax.lax.map(attend, blocks), 0, 2)
    return done.reshape(batch, heads, count * size, head_dim)[:, :, :tokens]


@jax.custom_jvp
def _attention(query: Any, key: Any, value: Any, bias: Any) -> Any:
    weights = _weights(query, key, bias).astype(value.dtype)
    return _weighted(weights, value)


@_attention.defjvp
def _(inputs: Any, tangents: Any) -> Any:
    (query, key, value, bias), (dquery, dkey, dvalue, dbias) = inputs, tangents
    weights = _weights(query, key, bias)
    scale = query.shape[-1] ** -0.5
    dscores = _wide_product("bhqd,bhkd->bhqk", dquery * scale, key)
    dscores += _wide_product("bhqd,bhkd->bhqk", query * scale, dkey)
    dscores = dscores if bias is None else dscores + dbias
    dweights = weights * (dscores - (weights * dscores).sum(-1, keepdims=True))
    weights, dweights = weights.astype(value.dtype), dweights.astype(value.dtype)
    y, dy = (_weighted(w, value) for w in (weights, dweights))
    return y, dy + _weighted(weights, dvalue)


def _weighted(weights: Any, value: Any) -> Any:
    """Returns the weighted sum of values `(batch, heads, others, head_dim)` for each query."""
    return _product(weights, value) if value.dtype == jnp.bfloat16 else weights @ value


def _weights(query: Any, key: Any, bias: Any) -> Any:
    scale = query.shape[-1] ** -0.5
    scores = _wide_product("bhqd,bhkd->bhqk", query * scale, key)
    return jax.nn.softmax(scores if bias is None else scores + bias)


def _wide_product(equation: str, left: Any, right: Any) -> Any:
    """Returns an einsum that accumulates in float32 at least."""
    return jnp.einsum(
        equation, left, right, preferred_element_type=reference.at_least_float32(left)
    )


def _product(left: Any, right: Any, form: str = "nn") -> Any:
    """Returns the product of two bfloat16 matrices, or of two batches of matrices.

    XLA's CPU compiler uses the processor's bfloat16 instructions only if the result is float32 and
    the sums run over the last axis of `left`. It converts all other products to float32 first,
    which takes twice as long. JAX's own gradient of a product with a float32 result is a product of
    float32 and bfloat16; therefore this is a primitive, whose gradients are two such products.

    Args:
        left, right: matrices of a product of this form.
        form: `"nn"`: `left @ right`; `"tn"`: `left` is transposed; `"nt"`: `right` is.
    """
    return _product_p.bind(left, right, form=form)


_EQUATIONS = {
    "nn": "...mk,...kn->...mn",
    "tn": "...km,...kn->...mn",
    "nt": "...mk,...nk->...mn",
}


def _on_cpus(left: Any, right: Any, form: str) -> Any:
    if form == "tn" and jax.device_count() == 1:  # several devices would gather a flat array
        turned = jnp.swapaxes(left, -1, -2)
        # A flat array has a fixed memory layout, so that XLA must write the transposed matrix.
        left = jax.lax.optimization_barrier(turned.reshape(-1)).reshape(turned.shape)
        form = "nn"
    return _wide_product(_EQUATIONS[form], left, right).astype(left.dtype)


def _elsewhere(left: Any, right: Any, form: str) -> Any:
    return jnp.einsum(_EQUATIONS[form], left, right)


def _differentiate_left(dy: Any, left: Any, right: Any, form: str) -> Any:
    if form == "tn":
        return _product(right, dy, "nt")
    return _product(dy, right, "nt" if form == "nn" else "nn")


def _differentiate_right(dy: Any, left: Any, right: Any, form: str) -> Any:
    if form == "nt":
        return _product(dy, left, "tn")
    return _product(left, dy, "tn" if form == "nn" else "nn")


def _batched(arrays: Any, axes: Any, form: str) -> Any:
    """Returns the product under `jax.vmap`, and the new axis of the result."""
    size = next(x.shape[axis] for x, axis in zip(arrays, axes, strict=True) if axis is not None)
    left, right = (
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(arrays, axes, strict=True)
    )
    return _product(left, right, form), 0


_product_p = Primitive("product_of_bfloat16")
_product_p.def_impl(jax.jit(_product, static_argnames="form"))


@_product_p.def_abstract_eval
def _(left: Any, right: Any, form: str) -> Any:
    shape = jax.eval_shape(functools.partial(_elsewhere, form=form), left, right).shape
    return left.update(shape=shape)


ad.defbilinear(_product_p, _differentiate_left, _differentiate_right)
batching.primitive_batchers[_product_p] = _batched
for _form, _platform in ((_elsewhere, None), (_on_cpus, "cpu")):
    _lowering = mlir.lower_fun(_form, multiple_results=False)
    mlir.register_lowering(_product_p, _lowering, platform=_platform)
