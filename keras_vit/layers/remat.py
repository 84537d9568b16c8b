"""Activations that are computed again for the gradient, instead of being kept until then."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit import kernels


def rematerialised(layer: Any, function: Callable[[Any], Any], inputs: Any) -> Any:
    """Returns `function(inputs)`, of which only `inputs` are kept for the gradient.

    The gradient runs `function` once more, with the random numbers of its first run: dropout
    drops the same values again. Source: Chen et al. 2016, arXiv 1604.06174; `keras.remat`.

    Args:
        layer: whose weights and seed generators `function` uses.
        function: from one tensor to one tensor.
        inputs: a float tensor.
    """
    weights = {id(weight) for weight in layer.weights}
    # The states of seed generators are variables, but no weights.
    seeds = [variable for variable in layer.variables if id(variable) not in weights]
    at_first = [ops.copy(seed.value) for seed in seeds]
    if keras.backend.backend() == "jax":
        # JAX runs the function once and repeats what it recorded; what the record assigned is
        # only known inside of it, and has to be handed in and out.
        def record(x: Any, states: Any) -> Any:
            _assign(seeds, states)
            return function(x), [seed.value for seed in seeds]

        outputs, states = kernels.remat(record, layer)(inputs, at_first)
        _assign(seeds, states)
        return outputs

    runs = 0

    def run(x: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == 1:
            return function(x)
        by_now = [ops.copy(seed.value) for seed in seeds]
        _assign(seeds, at_first)
        try:
            return function(x)
        finally:
            _assign(seeds, by_now)

    return kernels.remat(run, layer)(inputs)


def _assign(variables: list[Any], values: list[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
