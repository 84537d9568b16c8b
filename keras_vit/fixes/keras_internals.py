"""Private names of Keras that have no public counterpart, one function each.

Found 2026-11 in Keras 3.15.1. Each function leans only on the private name in its body.
"""

from collections.abc import Iterator, Sequence
from typing import Any


def all_layers(layer: Any) -> Iterator[Any]:
    """Yields a layer and every layer inside it. `Model.layers` stops one level down."""
    return layer._flatten_layers()


def continue_fit_at(model: Any, epoch: int | None) -> None:
    """Makes the running `fit` begin at an epoch; None stands for its argument `initial_epoch`.

    Call it in `on_train_begin`, as `keras.callbacks.BackupAndRestore` does. Keras keeps the number
    for later calls of `fit`: call it again with None when `fit` has begun.
    """
    model._initial_epoch = epoch


def index_of(optimizer: Any, variable: Any) -> int:
    """Returns the index of a model's variable among the optimizer's trainable variables.

    On TensorFlow the variable may be one replica's part of a distributed variable.
    """
    return optimizer._get_variable_index(variable)


def adam_moments(optimizer: Any, index: int) -> tuple[Any, Any]:
    """Returns the running means of a variable's gradient and of its square."""
    return optimizer._momentums[index], optimizer._velocities[index]


def accumulators(optimizer: Any, variables: Sequence[Any]) -> list[Any]:
    """Returns the variables that sum up gradients over the batches of an update."""
    return [optimizer._accumulated_gradients[index_of(optimizer, v)] for v in variables]


def layout_of(variable: Any) -> Any:
    """Returns the layout of a variable on the devices of `keras.distribution`, or None."""
    return getattr(variable, "_layout", None)
