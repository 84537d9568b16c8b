"""Imports jax: layer norm and attention with derivatives written out, and remat, for CPUs.

A training step of twelve blocks takes half as long again with autodiff's gradient of a layer norm
(benchmarks/README.md, "Layer norm on JAX"): XLA's CPU compiler fuses it into the gradients of all
earlier blocks and computes the gradient of the residual stream repeatedly. The tangents here are
one expression of saved mean and deviation, which leaves no computation to repeat. They serve
forward and reverse mode of every order. Accelerators compute the plain forms.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from keras import ops

from keras_vit.kernels import reference
from keras_vit.kernels.sizes import is_known

call_part = reference.call_part
direct = reference.direct
tensor = reference.tensor
linear = reference.linear
uniform = reference.uniform


def gelu(x: Any, approximate: bool) -> Any:
    """See `reference.gelu`.

    For many tokens the result is clamped to the range of finite numbers, which changes no finite
    value and prevents a fusion: XLA's CPU compiler would fuse the GELU of the last block with the
    products around it, and reserve an array as large as `x` for each of its constants: 384 MB in
    place of 192 for ViT-B/16 at 1024 pixels (JAX 0.10.2; benchmarks/README.md, "Many tokens").
    """
    y = reference.gelu(x, approximate)
    tokens = x.shape[1] if x.ndim > 2 else 1
    few = not is_known(tokens) or tokens**2 <= reference.MOST_SCORES
    if few or jax.default_backend() != "cpu":
        return y
    most = jnp.finfo(x.dtype).max
    return jax.lax.clamp(-most, y, most)


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """See `reference.remat`.

    The second run is inside a branch. XLA's CPU compiler removes the barriers of `jax.checkpoint`
    and merges the second run with the first, which keeps all activations; it does not merge code
    across a branch.
    """
    if jax.default_backend() != "cpu":
        return reference.remat(function, layer)
    return functools.partial(_remat, function)


def _remat(function: Callable[..., Any], *inputs: Any) -> Any:
    if any(isinstance(x, jax.interpreters.ad.JVPTracer) for x in jax.tree.leaves(inputs)):
        return function(*inputs)  # forward mode keeps nothing for later
    pure, weights = jax.closure_convert(function, *inputs)
    run = jax.custom_vjp(pure)
    run.defvjp(lambda *every: (pure(*every), every), functools.partial(_run_again, pure))
    return run(*inputs, *weights)


def _run_again(pure: Callable[..., Any], inputs: Any, dy: Any) -> Any:
    """Returns the gradient, in a branch that the program always takes but XLA cannot predict."""
    some = next(part for part in jax.tree.leaves(dy) if not _is_fixed(part))
    return jax.lax.cond(
        some[(0,) * some.ndim] * 0 != 1,
        lambda: jax.tree.map(lambda d: None if _is_fixed(d) else d, jax.vjp(pure, *inputs)[1](dy)),
        lambda: jax.tree.map(lambda x: None if _is_fixed(x) else jnp.zeros_like(x), inputs),
    )


def _is_fixed(x: Any) -> bool:
    """Whether an array has no gradient, such as the integer state of a random generator."""
    return not jnp.issubdtype(x.dtype, jnp.inexact)


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """See `reference.layer_norm`."""
    if jax.default_backend() != "cpu":
        return reference.layer_norm(x, gamma, beta, epsilon)
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


def attention(query: Any, key: Any, value: Any) -> Any:
    """See `reference.attention`. On accelerators, Keras calls their fused kernels."""
    if jax.default_backend() != "cpu":
        return ops.dot_product_attention(query, key, value)
    # (batch, heads, tokens, head_dim)
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    tokens, others = query.shape[2], key.shape[2]
    many = is_known(tokens, others) and tokens * others > reference.MOST_SCORES
    return jnp.swapaxes((_in_blocks if many else _attention)(query, key, value), 1, 2)


def _in_blocks(query: Any, key: Any, value: Any) -> Any:
    """Returns attention by blocks of queries, each of which is computed again for the gradient."""
    batch, heads, tokens, head_dim = query.shape
    size = reference.block_of_queries(key.shape[2])
    count = -(-tokens // size)
    query = jnp.pad(query, [(0, 0), (0, 0), (0, count * size - tokens), (0, 0)])
    blocks = jnp.moveaxis(query.reshape(batch, heads, count, size, head_dim), 2, 0)
    attend = jax.checkpoint(lambda block: _attention(block, key, value))
    done = jnp.moveaxis(jax.lax.map(attend, blocks), 0, 2)
    return done.reshape(batch, heads, count * size, head_dim)[:, :, :tokens]


@jax.custom_jvp
def _attention(query: Any, key: Any, value: Any) -> Any:
    weights = _weights(query, key).astype(value.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, value)


@_attention.defjvp
def _(inputs: Any, tangents: Any) -> Any:
    (query, key, value), (dquery, dkey, dvalue) = inputs, tangents
    weights = _weights(query, key)
    scale = query.shape[-1] ** -0.5
    dscores = _product("bhqd,bhkd->bhqk", dquery * scale, key)
    dscores += _product("bhqd,bhkd->bhqk", query * scale, dkey)
    dweights = weights * (dscores - (weights * dscores).sum(-1, keepdims=True))
    weights, dweights = weights.astype(value.dtype), dweights.astype(value.dtype)
    y, dy = (jnp.einsum("bhqk,bhkd->bhqd", w, value) for w in (weights, dweights))
    return y, dy + jnp.einsum("bhqk,bhkd->bhqd", weights, dvalue)


def _weights(query: Any, key: Any) -> Any:
    scale = query.shape[-1] ** -0.5
    return jax.nn.softmax(_product("bhqd,bhkd->bhqk", query * scale, key))


def _product(equation: str, left: Any, right: Any) -> Any:
    """Returns an einsum whose sums are float32 at least."""
    return jnp.einsum(
        equation, left, right, preferred_element_type=reference.at_least_float32(left)
    )
