"""Updates under TensorFlow's strategies, where each replica has the gradient of its images.

Keras clips, accumulates and averages in each replica, before it sums the gradients (docs/upstream/
mirrored_clipping.md). Here the gradients are summed first. All replicas then hold the same numbers,
so that the update is that of one device, and any replica's state can be saved.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_vit.fixes.keras_internals import accumulators


def is_replicated() -> bool:
    """Whether the caller is one of several replicas of a strategy."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


def apply(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """Updates the variables on every replica, from the sum of the replicas' gradients.

    Args:
        optimizer: `LayerwiseSGD` or `LayerwiseAdamW`.
        gradients: gradients of this replica's share of the loss.
        variables: the Keras variables, as many.
    """
    context = tf.distribute.get_replica_context()
    total = list(context.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients)))
    batches = optimizer.gradient_accumulation_steps or 1
    sums = accumulators(optimizer, variables) if batches > 1 else []
    if sums:
        total = [g + tf.cast(s, g.dtype) for g, s in zip(total, sums, strict=True)]
    step = optimizer.clip([g / batches for g in total] if sums else total)
    updates = tf.equal(optimizer.batches_seen % batches, 0)
    averages = optimizer.averages if optimizer.use_ema else []
    kept = optimizer.kept_of_the_average() if averages else None
    rate = optimizer.learning_rate

    def update(strategy: Any, step: Any, total: Any, updates: Any, rate: Any, kept: Any) -> None:
        def change(weight: Any, gradient: Any, updates: Any, rate: Any) -> None:
            tf.cond(
                updates, lambda: _done(optimizer.update_step(gradient, weight, rate)), lambda: True
            )

        def keep(average: Any, weight: Any, kept: Any) -> None:
            share = tf.cast(kept, average.dtype)
            average.assign(share * average + (1 - share) * weight)

        def add(total: Any, gradient: Any, updates: Any) -> None:
            total.assign(tf.where(updates, tf.zeros_like(gradient), gradient))

        on = strategy.extended.update
        for variable, gradient in zip(variables, step, strict=True):
            on(variable.value, change, args=(gradient, updates, rate), group=False)
        for variable, gradient in zip(sums, total if sums else (), strict=True):
            on(variable.value, add, args=(gradient, updates), group=False)
        for variable, average in averages:
            on(average.value, keep, args=(variable.value, kept), group=False)

    context.merge_call(update, args=(step, total, updates, rate, kept))


def _done(_: None) -> bool:
    return True
