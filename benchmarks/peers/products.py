"""Only the matrix products of the model, by torch, the anchor of a run, or by XLA.

A product is called as often as the model has it, each time by itself, so that no library can fuse
it with another operation or leave out a product that it has computed before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import Job, Step


def make(job: Job, library: str) -> Step:
    """One pass over all products; in training three, because each has two more backwards."""
    from benchmarks.peers.torch_native import synchronize

    rng, runs = np.random.default_rng(0), []
    for count, stack, rows, inner, columns in job.size.products(job.batch):
        lead = (stack,) if stack > 1 else ()
        left = rng.standard_normal((*lead, rows, inner), dtype="float32")
        right = rng.standard_normal((*lead, inner, columns), dtype="float32")
        runs.append((count, MAKERS[library](left, right, job.dtype)))
    passes = 3 if job.task == "train" else 1

    def step(steps: int) -> None:
        for _ in range(steps * passes):
            for count, run in runs:
                for _ in range(count):
                    run()
        synchronize()

    step(1)
    return step


def _torch(left: np.ndarray, right: np.ndarray, dtype: str) -> Callable[[], Any]:
    import torch

    from benchmarks.peers.torch_native import torch_device

    x, w = (torch.from_numpy(a).to(torch_device(), getattr(torch, dtype)) for a in (left, right))
    out = torch.empty((*x.shape[:-1], w.shape[-1]), device=x.device, dtype=x.dtype)
    return lambda: torch.matmul(x, w, out=out)


def _xla(left: np.ndarray, right: np.ndarray, dtype: str) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    x, w = jnp.asarray(left, dtype), jnp.asarray(right, dtype)
    product = jax.jit(jnp.matmul)
    return lambda: product(x, w).block_until_ready()


MAKERS = {"torch": _torch, "xla": _xla}
"""By library, the function that takes both matrices and returns what multiplies them."""
