"""Keras's AdamW and SGD with a learning rate and a weight decay for each variable.

Keras's `MultiOptimizer`, which also gives variables different rates, clips each group separately.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.errors import ConfigError

# On torch, Keras makes an instance of a subclass that moves all variables by one operation.
_AdamW: Any = type(keras.optimizers.AdamW.__new__(keras.optimizers.AdamW))


class _Layerwise(keras.optimizers.Optimizer):
    """A mixin for optimizers of Keras: rate and decay of a variable depend on its path.

    Gradients of replicas and processes are summed before Keras accumulates and clips them, so that
    all of them make the same update, which is that of one device. Keras clips the gradients of
    each replica instead.

    Leans on: `_backend_apply_gradients`, `_backend_update_step`, `_apply_weight_decay`,
    `_backend_increment_gradient_accumulators`, `_use_weight_decay` and `_get_variable_index`.
    """

    def __init__(
        self,
        *args: Any,
        multipliers: Mapping[str, float] | None = None,
        decays: str = r"kernel$",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.multipliers = dict(multipliers or {})
        self.decays = decays
        self.sum_over_processes = False  # `keras_vit.distribution.ddp` sets it

    def build(self, variables: list[Any]) -> None:
        """Creates the state of the variables, and looks up their multipliers and decays."""
        if self.built:
            return
        super().build(variables)
        patterns = self.multipliers.items()
        self.multiplier_of = tuple(
            float(next((m for pattern, m in patterns if re.search(pattern, v.path)), 1))
            for v in variables
        )
        self.is_decayed = tuple(bool(re.search(self.decays, v.path)) for v in variables)

    def _use_weight_decay(self, variable: Any) -> bool:
        is_decayed = self.is_decayed[self._get_variable_index(variable)]
        return bool(self.weight_decay) and is_decayed and super()._use_weight_decay(variable)

    def _backend_apply_gradients(self, grads: Sequence[Any], trainable_variables: Any) -> None:
        if self.sum_over_processes:
            from keras_vit.distribution.torchrun import mean_over_processes

            grads = mean_over_processes(grads)
        elif keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            context = tf.distribute.get_replica_context()
            if context is not None and context.num_replicas_in_sync > 1:
                grads = context.all_reduce(tf.distribute.ReduceOp.SUM, grads)
        super()._backend_apply_gradients(grads, trainable_variables)

    def _backend_increment_gradient_accumulators(self, grads: Any, acc_grads: Any) -> None:
        for gradient, total in zip(grads, acc_grads, strict=True):
            self.assign_add(total, gradient)

    def _apply_weight_decay(self, variables: Any) -> None:
        """Does nothing, because the decay of a variable follows its own rate."""

    def _backend_update_step(
        self, grads: Sequence[Any], trainable_variables: Any, learning_rate: Any
    ) -> None:
        groups = defaultdict(list)
        for gradient, variable in zip(grads, trainable_variables, strict=True):
            multiplier = self.multiplier_of[self._get_variable_index(variable)]
            groups[multiplier].append((gradient, variable))
            if self._use_weight_decay(variable):
                share = ops.cast(learning_rate * (multiplier * self.weight_decay), variable.dtype)
                self.assign(variable, variable * (1 - share))
        for multiplier, pairs in groups.items():
            rate = learning_rate * multiplier
            if keras.backend.backend() == "tensorflow":  # Keras would sum over replicas again
                for gradient, variable in pairs:
                    self.update_step(gradient, variable, rate)
            else:
                super()._backend_update_step(*zip(*pairs, strict=True), rate)

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Puts the averages into the weights when `fit` ends.

        Keras puts the same arrays into both, and JAX refuses them in the next `fit`.
        """
        super().finalize_variable_values(var_list)
        if self.use_ema and keras.backend.backend() == "jax":
            for variable in var_list:
                variable.assign(ops.copy(variable))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types."""
        own = {"multipliers": dict(self.multipliers), "decays": self.decays}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("keras_vit")
class LayerwiseSGD(_Layerwise, keras.optimizers.SGD):
    """Momentum SGD as in the paper's code, with a learning rate per variable.

        trace  = momentum * trace + gradient
        weight = weight - rate * (trace + weight_decay * weight)

    The momentum of `keras.optimizers.SGD` sums `rate * gradient` instead. The results are the same
    while the rate is constant. Under a schedule, Keras weights each gradient by the rate of its own
    step, and after a warm-up of a few hundred steps the weights differ visibly.

    Args:
        learning_rate, momentum, nesterov, ...: arguments of `keras.optimizers.SGD`.
        multipliers: `{pattern: factor}`; the learning rate of a variable is multiplied by the
            factor of the first pattern (a regular expression) found in its path.
        decays: pattern of the variables that `weight_decay` applies to. The decay is
            decoupled and multiplied by the variable's own learning rate.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its gradient, which is already clipped."""
        step = gradient = ops.cast(gradient, variable.dtype)
        if self.momentum:
            trace = self.momentums[self._get_variable_index(variable)]
            step = self.momentum * trace + gradient
            self.assign(trace, step)
            if self.nesterov:
                step = gradient + self.momentum * step
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * step)


@keras.saving.register_keras_serializable("keras_vit")
class LayerwiseAdamW(_Layerwise, _AdamW):
    """`keras.optimizers.AdamW` with a learning rate per variable, and decay of kernels alone.

    Keras adds epsilon before it corrects the variance for its start at zero, optax and torch after
    it. In the first steps the epsilon is therefore in effect up to 30 times as large as theirs.
    By default only kernels decay, as in big_vision; biases, norms, the class token and position
    embeddings do not.

    Args:
        learning_rate, weight_decay, beta_1, beta_2, epsilon, ...: arguments of
            `keras.optimizers.AdamW`.
        multipliers, decays: as for `LayerwiseSGD`.

    Raises:
        ConfigError: in `build`, the weights have 16 bits.
    """

    def build(self, variables: list[Any]) -> None:
        """Creates the state of the variables, and looks up their multipliers and decays."""
        for variable in variables:
            if keras.backend.standardize_dtype(variable.dtype) in ("bfloat16", "float16"):
                raise ConfigError(
                    f"AdamW needs weights in float32, but {variable.path} is in {variable.dtype}, "
                    "where a beta of 0.999 is 1. Build the model with dtype='mixed_bfloat16'."
                )
        super().build(variables)
