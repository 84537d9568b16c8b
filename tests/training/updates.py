"""Many updates of an optimizer: JAX compiles them as one loop, TensorFlow each as one graph."""

import keras
import numpy as np

from tests.helpers import to_numpy

EXACT = {"xla_allow_excess_precision": False}
"""Makes XLA round to bfloat16 wherever the program does, instead of keeping float32."""


def after_each(optimizer, weights, gradients) -> list[np.ndarray]:
    """Applies recorded gradients, one step after the other.

    Args:
        weights: Keras variables; they and the optimizer keep their final values.
        gradients: per weight `(steps, *shape)`.

    Returns:
        Per weight its values after each step, `(steps, *shape)`.
    """
    optimizer.build(weights)
    if keras.backend.backend() != "jax":
        path, apply = [], lambda now: optimizer.apply(now, weights)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            apply = tf.function(apply)
        for now in zip(*gradients, strict=True):
            apply([keras.ops.convert_to_tensor(gradient) for gradient in now])
            path.append([to_numpy(weight) for weight in weights])
        return [np.stack(values) for values in zip(*path, strict=True)]
    import jax

    def step(carry, now):
        values, state = optimizer.stateless_apply(carry[1], now, carry[0])
        return (values, state), values

    first = [w.value for w in weights], [v.value for v in optimizer.variables]
    run = jax.jit(lambda c, g: jax.lax.scan(step, c, g), compiler_options=EXACT)
    last, path = run(first, list(gradients))
    for variable, value in zip([*weights, *optimizer.variables], [*last[0], *last[1]], strict=True):
        variable.assign(value)
    return [np.asarray(values) for values in path]
