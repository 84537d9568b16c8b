"""TensorFlow: sums over replicas, and steps of SGD and AdamW that read and write each weight once.

Keras composes a step from some fifteen operations, each with an array as large as the weight.
"""

from typing import Any

import keras
import tensorflow as tf


def sum_over_replicas(gradients: list[Any]) -> list[Any]:
    """Returns the sums of the gradients over the replicas of a strategy, on every replica."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return gradients
    return list(context.all_reduce(tf.distribute.ReduceOp.SUM, gradients))


def sgd(optimizer: Any, variable: Any, gradient: Any, trace: Any, rate: Any) -> None:
    """Moves a weight as `LayerwiseSGD.move` does, without weight decay.

    Args:
        optimizer: a `LayerwiseSGD` with momentum.
        variable: the weight, a `tf.Variable` or one replica's part of it.
        gradient: gradient, of the type of the weight.
        trace: the Keras variable of the weight's trace, of the same type.
        rate: learning rate of this weight, a scalar.
    """
    tf.raw_ops.ResourceApplyMomentum(
        var=_handle(variable),
        accum=_handle(trace),
        lr=rate,
        grad=tf.convert_to_tensor(gradient),
        momentum=tf.cast(optimizer.momentum, gradient.dtype),
        use_nesterov=optimizer.nesterov,
    )


def adam(optimizer: Any, variable: Any, gradient: Any, mean: Any, variance: Any, rate: Any) -> None:
    """Moves a weight as `LayerwiseAdamW.move` does, without weight decay.

    TensorFlow's operation adds epsilon before it corrects the variance, as Keras does. It is given
    an epsilon that makes up for the correction.

    Args:
        optimizer: a `LayerwiseAdamW`.
        variable: the weight, a `tf.Variable` or one replica's part of it.
        gradient: gradient, of the type of the weight.
        mean, variance: the Keras variables of the running means, of the same type.
        rate: learning rate of this weight, a scalar.
    """
    dtype = gradient.dtype
    beta_1, beta_2 = tf.cast(optimizer.beta_1, dtype), tf.cast(optimizer.beta_2, dtype)
    step = tf.cast(optimizer.iterations + 1, dtype)
    beta_2_power = tf.pow(beta_2, step)
    tf.raw_ops.ResourceApplyAdam(
        var=_handle(variable),
        m=_handle(mean),
        v=_handle(variance),
        beta1_power=tf.pow(beta_1, step),
        beta2_power=beta_2_power,
        lr=rate,
        beta1=beta_1,
        beta2=beta_2,
        epsilon=tf.cast(optimizer.epsilon, dtype) * tf.sqrt(1 - beta_2_power),
        grad=tf.convert_to_tensor(gradient),
    )


def _handle(variable: Any) -> tf.Tensor:
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle
