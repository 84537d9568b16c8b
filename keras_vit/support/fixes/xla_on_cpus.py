"""Keeps XLA from fusing operations of JAX that must stay separate on CPUs.

Symptoms: a gradient under `jax.checkpoint`, which `keras.remat` calls, saves no memory, because the
compiler removes the barriers of `jax.checkpoint` and reuses the first run for the second. The GELU
of the last block takes 384 MB instead of 192 MB for ViT-B/16 at 1024 pixels: the compiler fuses it
with the matrix products around it, and reserves an array as large as the hidden layer for each
constant of the GELU (benchmarks/decisions.md).

Workarounds: in programs for CPUs the second run is inside a branch that is always taken, which the
compiler cannot predict; the output of the GELU is clamped to limits that no finite value exceeds.
Programs for other platforms have the barriers of `jax.checkpoint`.

Private names: none.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def kept_out_of_fusions(x: Any) -> Any:
    """Returns `x` as an array that XLA does not fuse with the matrix products that read it."""
    most = jnp.finfo(x.dtype).max
    return jax.lax.clamp(-most, x, most)


def remat(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that keeps only its inputs for the gradient, and then runs again."""
    return functools.partial(_remat, function)


def _remat(function: Callable[..., Any], *inputs: Any) -> Any:
    if any(isinstance(x, jax.interpreters.ad.JVPTracer) for x in jax.tree.leaves(inputs)):
        return function(*inputs)  # forward mode stores no activations
    pure, weights = jax.closure_convert(function, *inputs)
    run = jax.custom_vjp(pure)
    run.defvjp(lambda *every: (pure(*every), every), functools.partial(_run_again, pure))
    return run(*inputs, *weights)


def _run_again(pure: Callable[..., Any], inputs: Any, dy: Any) -> Any:
    """Returns the gradient of a second run, which no platform merges with the first."""
    gradients = jax.jit(functools.partial(_gradients, pure), inline=True)  # both share its trace
    on_cpus, elsewhere = (
        functools.partial(form, gradients) for form in (_in_a_branch, _after_a_barrier)
    )
    return jax.lax.platform_dependent(inputs, dy, cpu=on_cpus, default=elsewhere)


def _gradients(pure: Callable[..., Any], inputs: Any, dy: Any) -> Any:
    gradients = jax.vjp(pure, *inputs)[1](dy)
    return jax.tree.map(lambda d: None if _is_fixed(d) else d, gradients)


def _in_a_branch(gradients: Callable[..., Any], inputs: Any, dy: Any) -> Any:
    """Returns the gradient, in a branch that the program always takes but XLA cannot predict."""
    some = next(part for part in jax.tree.leaves(dy) if not _is_fixed(part))
    return jax.lax.cond(
        some[(0,) * some.ndim] * 0 != 1,
        lambda: gradients(inputs, dy),
        lambda: jax.tree.map(lambda x: None if _is_fixed(x) else jnp.zeros_like(x), inputs),
    )


def _after_a_barrier(gradients: Callable[..., Any], inputs: Any, dy: Any) -> Any:
    """Returns the gradient of inputs that wait for `dy`, as `jax.checkpoint` does."""
    return gradients(*jax.lax.optimization_barrier((inputs, dy)))


def _is_fixed(x: Any) -> bool:
    """Whether an array has no gradient, such as the integer state of a random generator."""
    return not jnp.issubdtype(x.dtype, jnp.inexact)
