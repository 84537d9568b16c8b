"""Imports jax: layer norm and attention with gradients written out, and remat for CPUs.

Left to autodiff, XLA's CPU compiler fuses the gradient of every layer norm into those of
all blocks before it: it computes the gradient of the residual stream again and again from
its end, and a training step of twelve blocks takes half as long again. A gradient that is
one expression of saved mean and deviation leaves nothing to repeat. Attention with heads
before tokens spares the products their copies.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from keras_vit.kernels import reference

linear = reference.linear
uniform = reference.uniform
call_part = reference.call_part
direct = reference.direct


def gelu(x: Any, approximate: bool, in_place: bool = False) -> Any:
    """See `reference.gelu`.

    Among many tokens XLA's CPU compiler takes the GELU of the last block into one operation with
    the products around it, whose constants are arrays as large as `x`, reserved from the start.
    Limits that no number is beyond keep it out.
    """
    y = reference.gelu(x, approximate)
    if x.ndim < 3 or x.shape[1] ** 2 <= reference.MOST_SCORES or jax.default_backend() != "cpu":
        return y
    most = jnp.finfo(x.dtype).max
    return jax.lax.clamp(-most, y, most)


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """See `reference.remat`.

    XLA's CPU compiler removes the barriers of `jax.checkpoint` and joins the second run with the
    first, so that everything is kept after all. What stands in a branch stays there.
    """
    if jax.default_backend() != "cpu":
        return reference.remat(function, layer)
    return functools.partial(_remat, function)


def _remat(function: Callable[..., Any], *inputs: Any) -> Any:
    pure, weights = jax.closure_convert(function, *inputs)
    run = jax.custom_vjp(pure)
    run.defvjp(lambda *every: (pure(*every), every), functools.partial(_run_again, pure))
    return run(*inputs, *weights)


def _run_again(pure: Callable[..., Any], inputs: Any, dy: Any) -> Any:
    """The gradient, in a branch that is always taken, which only the running program knows."""
    some = next(part for part in jax.tree.leaves(dy) if not _is_fixed(part))
    return jax.lax.cond(
        some[(0,) * some.ndim] * 0 != 1,
        lambda: jax.tree.map(lambda d: None if _is_fixed(d) else d, jax.vjp(pure, *inputs)[1](dy)),
        lambda: jax.tree.map(lambda x: None if _is_fixed(x) else jnp.zeros_like(x), inputs),
    )


def _is_fixed(x: Any) -> bool:
    """Whether there is no gradient by it: states of random numbers are integers."""
    return not jnp.issubdtype(x.dtype, jnp.inexact)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """See `reference.layer_norm`."""
    return _layer_norm_forward(x, gamma, beta, epsilon)[0]


def _layer_norm_forward(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    x32 = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean = x32.mean(-1, keepdims=True)
    centred = x32 - mean
    inverse = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon)
    y = centred * inverse * gamma + beta
    return y.astype(x.dtype), (x, mean, inverse, gamma, beta)


def _layer_norm_backward(epsilon: float, saved: Any, dy: Any) -> Any:
    x, mean, inverse, gamma, beta = saved
    normal = (x.astype(mean.dtype) - mean) * inverse
    dy = dy.astype(mean.dtype)
    examples = tuple(range(x.ndim - 1))
    dgamma, dbeta = (dy * normal).sum(examples), dy.sum(examples)
    dnormal = dy * gamma
    inner = (dnormal * normal).mean(-1, keepdims=True)
    dx = inverse * (dnormal - dnormal.mean(-1, keepdims=True) - normal * inner)
    return dx.astype(x.dtype), dgamma.astype(gamma.dtype), dbeta.astype(beta.dtype)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


def attention(query: Any, key: Any, value: Any) -> Any:
    """See `reference.attention`. Accelerators have kernels of their own, which Keras calls."""
    if jax.default_backend() != "cpu":
        return reference.attention(query, key, value)
    # (batch, heads, tokens, head_dim)
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    many = query.shape[2] * key.shape[2] > reference.MOST_SCORES
    return jnp.swapaxes((_in_blocks if many else _attention)(query, key, value), 1, 2)


def _in_blocks(query: Any, key: Any, value: Any) -> Any:
    """Attention of some queries after the others, computed again for the gradient."""
    batch, heads, tokens, head_dim = query.shape
    size = reference.block_of_queries(key.shape[2])
    count = -(-tokens // size)
    query = jnp.pad(query, [(0, 0), (0, 0), (0, count * size - tokens), (0, 0)])
    blocks = jnp.moveaxis(query.reshape(batch, heads, count, size, head_dim), 2, 0)
    attend = jax.checkpoint(lambda block: _attention(block, key, value))
    done = jnp.moveaxis(jax.lax.map(attend, blocks), 0, 2)
    return done.reshape(batch, heads, count * size, head_dim)[:, :, :tokens]


@jax.custom_vjp
def _attention(query: Any, key: Any, value: Any) -> Any:
    return _attention_forward(query, key, value)[0]


def _attention_forward(query: Any, key: Any, value: Any) -> Any:
    logits = _product("bhqd,bhkd->bhqk", query / math.sqrt(query.shape[-1]), key)
    weights = jax.nn.softmax(logits).astype(value.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, value), (query, key, value, weights)


def _attention_backward(saved: Any, dy: Any) -> Any:
    query, key, value, weights = saved
    dvalue = jnp.einsum("bhqk,bhqd->bhkd", weights, dy)
    dweights = _product("bhqd,bhkd->bhqk", dy, value)
    inner = (weights * dweights).sum(-1, keepdims=True)
    dlogits = (weights * (dweights - inner) / math.sqrt(query.shape[-1])).astype(query.dtype)
    dquery = jnp.einsum("bhqk,bhkd->bhqd", dlogits, key)
    return dquery, jnp.einsum("bhqk,bhqd->bhkd", dlogits, query), dvalue


def _product(equation: str, left: Any, right: Any) -> Any:
    """An einsum whose sums are float32 at least."""
    sums = jnp.promote_types(left.dtype, jnp.float32)
    return jnp.einsum(equation, left, right, preferred_element_type=sums)


_attention.defvjp(_attention_forward, _attention_backward)
