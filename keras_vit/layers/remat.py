"""Rematerialisation (gradient checkpointing): recomputes activations instead of storing them."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit import kernels


def rematerialised(layer: Any, function: Callable[..., Any], *inputs: Any) -> Any:
    """Returns `function(*inputs)`, and stores only `inputs` for the gradient, to save memory.

    The gradient runs `function` again with the same random numbers, so that dropout drops the same
    values. Source: Chen et al. 2016, arXiv 1604.06174; `keras.remat`.

    Args:
        layer: the layer whose weights and seed generators `function` uses.
        function: a function from tensors to one tensor.
        inputs: float tensors.
    """
    weights = {id(weight) for weight in layer.weights}
    # The states of seed generators are variables, but not weights.
    seeds = [variable for variable in layer.variables if id(variable) not in weights]
    at_first = [ops.copy(seed.value) for seed in seeds]
    if keras.backend.backend() == "jax":
        # JAX runs the function once and replays the trace. Values that the trace assigns to
        # variables exist only inside it, so the states are arguments and results of the trace.
        def record(states: Any, *tensors: Any) -> Any:
            _assign(seeds, states)
            return function(*tensors), [seed.value for seed in seeds]

        outputs, states = kernels.remat(record, layer)(at_first, *inputs)
        _assign(seeds, states)
        return outputs

    runs = 0

    def run(*tensors: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == 1:
            return function(*tensors)
        by_now = [ops.copy(seed.value) for seed in seeds]
        _assign(seeds, at_first)
        try:
            return function(*tensors)
        finally:
            _assign(seeds, by_now)

    return kernels.remat(run, layer)(*inputs)


def _assign(variables: list[Any], values: list[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
