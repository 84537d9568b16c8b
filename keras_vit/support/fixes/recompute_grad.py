"""Makes the gradient of a recomputed block differentiable on TensorFlow.

Releases and canary: `faults.py`.

Symptom: a gradient of a gradient through `tf.recompute_grad`, which `keras.remat` calls, raises an
error if the function reads variables: "recompute_grad tried to transpose grad".

Workaround: `tf.recompute_grad` computes only the first run, without recording it. A custom gradient
runs the function again under a tape, so that all outer tapes record the second run.

Leans on: nothing private.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def remat(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function whose gradient keeps only the inputs and runs the function again."""
    first_run = tf.recompute_grad(function)

    @tf.custom_gradient
    def run(*inputs: Any) -> Any:
        def gradient(dy: Any, variables: Any = ()) -> Any:
            variables = list(variables)
            with tf.GradientTape() as tape:
                again = [x + tf.cast(_late_zero(dy), x.dtype) for x in inputs]
                tape.watch([*again, *variables])
                y = function(*again)
            zeros = tf.UnconnectedGradients.ZERO
            gradients = tape.gradient(y, [*again, *variables], dy, unconnected_gradients=zeros)
            return gradients[: len(inputs)], gradients[len(inputs) :]

        return first_run(*inputs), gradient

    return run


def _late_zero(dy: Any) -> Any:
    """Returns a zero that depends on `dy`, so that a compiler cannot merge both runs."""
    some = tf.cast(tf.reduce_max(tf.reshape(dy, [-1])[:1]), tf.bool)
    return tf.where(some == some, 0.0, float("nan"))  # noqa: PLR0124
