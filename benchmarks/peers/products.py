"""The anchor: only the matrix products of the model, computed by torch."""

import torch

from benchmarks.peers import Job, Step
from benchmarks.peers.torch_native import synchronize, torch_device


def make(job: Job) -> Step:
    """One pass over all products; in training three passes, because each has two more backwards."""
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
