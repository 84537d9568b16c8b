"""AdamW and SGD of Keras with a learning rate and a weight decay for each variable.

Keras's `MultiOptimizer`, which also gives variables different rates, clips each group separately.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_vit.errors import ConfigError

_LIMITS = ("clipnorm", "global_clipnorm", "clipvalue")


class _Rate(NamedTuple):
    place: int
    multiplier: float
    is_decayed: bool


class _Layerwise(keras.optimizers.Optimizer):
    """A mixin for Keras optimizers that chooses rate and decay of a variable by its path."""

    weight_decay: float | None

    def __init__(
        self,
        *args: Any,
        multipliers: Mapping[str, float] | None = None,
        decays: str = r"kernel$",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        # Keras would decay every variable at one rate; `decay` does it at the variable's own.
        self.kernel_decay, self.weight_decay = self.weight_decay, None
        self.limits = {name: getattr(self, name) for name in _LIMITS}
        self.multipliers = dict(multipliers or {})
        self.decays = decays
        self.sum_over_processes = False  # `keras_vit.distribution.ddp` sets it

    def build(self, variables: list[Any]) -> None:
        """Creates the state of the variables, and looks up their multipliers and decays."""
        if self.built:
            return
        super().build(variables)
        self.rates: dict[int, _Rate] = {}
        for index, variable in enumerate(variables):
            is_decayed = bool(self.kernel_decay and re.search(self.decays, variable.path))
            rate = _Rate(index, self.multiplier_of(variable), is_decayed)
            self.rates |= dict.fromkeys(map(id, _parts(variable)), rate)

    def multiplier_of(self, variable: Any) -> float:
        """Returns the learning-rate multiplier of the first pattern found in a variable's path."""
        patterns = self.multipliers.items()
        return float(next((m for pattern, m in patterns if re.search(pattern, variable.path)), 1))

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Refuses the call: `decays` chooses the variables that decay.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"{type(self).__name__} has no exclude_from_weight_decay; its argument decays= is a "
            "pattern of the paths of the variables that decay, such as decays=r'mlp/.*kernel$'."
        )

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Updates the variables by the gradients of one batch.

        Gradients of processes and replicas are summed before they are clipped, so that each makes
        the same update as one device would. Under TensorFlow's strategies Keras sums once more
        after clipping, so gradients and limits are divided by the number of replicas.
        """
        if self.sum_over_processes:
            from keras_vit.distribution.torchrun import mean_over_processes

            present = iter(mean_over_processes([g for g in grads if g is not None]))
            grads = [None if g is None else next(present) for g in grads]
        replicas, grads = _sum_over_replicas(grads)
        if replicas > 1 and self.gradient_accumulation_steps:
            raise ConfigError(
                f"accumulate={self.gradient_accumulation_steps}: Keras accumulates no gradients on "
                f"{replicas} replicas of TensorFlow. Give accumulate=1, or train on one device."
            )
        if replicas > 1:
            for name, limit in self.limits.items():
                setattr(self, name, limit and limit / replicas)
        super().apply(grads, trainable_variables)

    def decay(self, variable: Any, learning_rate: Any) -> Any:
        """Decays a variable at its own learning rate, and returns this rate."""
        _, multiplier, is_decayed = self.rates[id(variable)]
        rate = ops.cast(learning_rate, variable.dtype) * multiplier
        if is_decayed:
            self.assign(variable, variable * (1 - rate * self.kernel_decay))
        return rate

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Copies the averaged weights into the model when `fit` ends.

        Keras puts the same arrays into both, which JAX refuses in the next `fit`.
        """
        super().finalize_variable_values(var_list)
        if self.use_ema and keras.backend.backend() == "jax":
            for variable in var_list:
                variable.assign(ops.copy(variable))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types."""
        own = {"multipliers": dict(self.multipliers), "decays": self.decays}
        return {**super().get_config(), **self.limits, "weight_decay": self.kernel_decay, **own}


def _parts(variable: Any) -> Sequence[Any]:
    """Returns the objects that Keras may pass to `update_step`: for TensorFlow, the tensors."""
    if keras.backend.backend() != "tensorflow":
        return (variable,)
    return (variable.value, *getattr(variable.value, "values", ()))


def _sum_over_replicas(grads: Sequence[Any]) -> tuple[int, Sequence[Any]]:
    """Returns the number of TensorFlow's replicas, and the mean of their gradients."""
    if keras.backend.backend() != "tensorflow":
        return 1, grads
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return 1, grads
    sums = context.all_reduce(tf.distribute.ReduceOp.MEAN, [g for g in grads if g is not None])
    present = iter(sums)
    return context.num_replicas_in_sync, [None if g is None else next(present) for g in grads]


@keras.saving.register_keras_serializable("keras_vit")
class LayerwiseSGD(_Layerwise, keras.optimizers.SGD):
    """Momentum SGD as in the paper's code, with a learning rate per variable.

        trace  = momentum * trace + gradient
        weight = weight - rate * (trace + weight_decay * weight)

    The momentum of `keras.optimizers.SGD` sums `rate * gradient` instead. The results are the same
    while the rate is constant. Under a schedule, Keras weights each gradient by the rate at its
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
        rate = self.decay(variable, learning_rate)
        step = gradient = ops.cast(gradient, variable.dtype)
        if self.momentum:
            trace = self.momentums[self.rates[id(variable)].place]
            step = self.momentum * trace + gradient
            self.assign(trace, step)
            if self.nesterov:
                step = gradient + self.momentum * step
        self.assign_sub(variable, rate * step)


@keras.saving.register_keras_serializable("keras_vit")
class LayerwiseAdamW(_Layerwise, keras.optimizers.AdamW):
    """AdamW with a learning rate per variable, which decays only kernels.

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
                    "which rounds 0.999 to 1. Build the model with dtype='mixed_bfloat16'."
                )
        super().build(variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its gradient, which is already clipped."""
        super().update_step(gradient, variable, self.decay(variable, learning_rate))
