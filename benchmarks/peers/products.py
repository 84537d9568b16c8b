"""Only the matrix products of the model: by torch, the anchor, and by each other library.

A product is called as often as the model has it, each time by itself, so that no library can fuse
it with another operation or leave out a product that it has computed before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import Job, Step


def make(job: Job) -> Step:
    """One pass over all products; in training three passes, because each has two more backwards."""
    import torch

    from benchmarks.peers.torch_native import synchronize, torch_device

    device, dtype = torch_device(), getattr(torch, job.dtype)
    operands = []
    for count, stack, rows, inner, columns in job.size.products(job.batch):
        left = torch.randn(stack, rows, inner, device=device).to(dtype).squeeze(0)
        right = torch.randn(stack, inner, columns, device=device).to(dtype).squeeze(0)
        out = torch.empty((*left.shape[:-1], columns), device=device, dtype=dtype)
        operands.append((count, left, right, out))
    passes = 3 if job.task == "train" else 1

    def step(steps: int) -> None:
        for _ in range(steps * passes):
            for count, left, right, out in operands:
                for _ in range(count):
                    torch.matmul(left, right, out=out)
        synchronize()

    with torch.no_grad():
        step(1)
    return torch.no_grad()(step)


def by(job: Job, library: str) -> Step:
    """The products by `"onednn"` (torch's operation), `"xla"`, `"tensorflow"` or `"openvino"`."""
    rng, runs = np.random.default_rng(0), []
    for count, stack, rows, inner, columns in job.size.products(job.batch):
        lead = (stack,) if stack > 1 else ()
        left = rng.standard_normal((*lead, rows, inner), dtype="float32")
        right = rng.standard_normal((*lead, inner, columns), dtype="float32")
        runs.append((count, _MAKERS[library](left, right, job.dtype)))
    passes = 3 if job.task == "train" else 1

    def step(steps: int) -> None:
        for _ in range(steps * passes):
            for count, run in runs:
                for _ in range(count):
                    run()

    step(1)
    return step


def _onednn(left: np.ndarray, right: np.ndarray, dtype: str) -> Callable[[], Any]:
    import torch

    x, w = (torch.from_numpy(array).to(getattr(torch, dtype)) for array in (left, right))
    if x.ndim == 3:  # torch has no such operation for stacks of matrices
        return torch.no_grad()(lambda: torch.bmm(x, w))
    packed = torch.ops.mkldnn._reorder_linear_weight(w.T.contiguous(), len(x))
    operation = torch.ops.mkldnn._linear_pointwise
    return torch.no_grad()(lambda: operation(x, packed, None, "none", [], ""))


def _xla(left: np.ndarray, right: np.ndarray, dtype: str) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    x, w = jnp.asarray(left, dtype), jnp.asarray(right, dtype)
    product = jax.jit(jnp.matmul)
    return lambda: product(x, w).block_until_ready()


def _tensorflow(left: np.ndarray, right: np.ndarray, dtype: str) -> Callable[[], Any]:
    import tensorflow as tf

    x, w = tf.cast(left, dtype), tf.cast(right, dtype)
    return lambda: tf.matmul(x, w)


def _openvino(left: np.ndarray, right: np.ndarray, dtype: str) -> Callable[[], Any]:
    import openvino
    from openvino import opset16

    x = opset16.parameter(list(left.shape), openvino.Type.f32)
    w = opset16.constant(right) if right.ndim == 2 else opset16.parameter(list(right.shape))
    inputs = [x] if right.ndim == 2 else [x, w]
    graph = openvino.Model([opset16.matmul(x, w, False, False).output(0)], inputs)
    hint = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    compiled = openvino.Core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": hint})
    request, arrays = compiled.create_infer_request(), [left, right][: len(inputs)]
    return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)


_MAKERS = {
    "onednn": _onednn,
    "xla": _xla,
    "tensorflow": _tensorflow,
    "openvino": _openvino,
}
