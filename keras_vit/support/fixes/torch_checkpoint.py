"""Recomputes a block for its gradient (activation checkpointing) without an autograd graph.

Symptom: `torch.utils.checkpoint.checkpoint(use_reentrant=False)`, which `keras.remat` calls, saves
less memory than the size of the activations that it drops. It builds an autograd graph in the first
run and discards it. The small objects of the graph lie between the arrays, so that the C library
cannot reuse the memory: twelve blocks of ViT-B/16 at 384 pixels held 444 MB, and 147 MB without
the graph.

Workaround: an autograd function whose forward pass runs without gradients.

Private names: none.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import get_device_states, set_device_states


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """Returns a function that keeps only its inputs for the gradient, and then runs again.

    Args:
        function: function of tensors.
        layer: the layer whose weights `function` reads.
    """
    weights = [weight for weight in layer.parameters() if weight.requires_grad]

    def run(x: Any, *others: Any) -> Any:
        # Further inputs are computed once, as weights are: their gradients need no second run.
        read = [other for other in others if other.requires_grad]
        return _Remat.apply(lambda x: function(x, *others), x, *read, *weights)

    return run


class _Remat(torch.autograd.Function):
    """A function of a tensor and weights that runs again to compute the gradients of both."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], x: Any, *weights: Any) -> Any:
        ctx.function, ctx.weights = function, weights
        ctx.save_for_backward(x)
        ctx.drawn = torch.get_rng_state(), get_device_states(x)
        return function(x)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        is_recorded = torch.is_grad_enabled()  # for a gradient of this gradient
        (x,) = ctx.saved_tensors
        _, *wanted = ctx.needs_input_grad
        generator, (devices, generators) = ctx.drawn
        kind = x.device.type if devices else "cuda"
        with torch.random.fork_rng(devices, device_type=kind), torch.enable_grad():
            torch.set_rng_state(generator)  # dropout drops the same values again
            set_device_states(devices, generators, device_type=kind)
            x = x.view_as(x) if is_recorded else x.detach().requires_grad_(wanted[0])
            y = ctx.function(x)
        inputs = [at for at, want in zip((x, *ctx.weights), wanted, strict=True) if want]
        found = torch.autograd.grad(y, inputs, dy, create_graph=is_recorded, allow_unused=True)
        gradients = iter(found)
        return (None, *(next(gradients) if want else None for want in wanted))
