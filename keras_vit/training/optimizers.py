"""SGD and AdamW with a separate learning rate and weight decay for each variable.

Both clip by the norm of all gradients together, as Keras's optimizers do. Keras's
`MultiOptimizer`, which also gives variables different rates, clips each group separately.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.errors import ConfigError
from keras_vit.kernels.reference import at_least_float32
from keras_vit.support.text import warn

if keras.backend.backend() == "torch":
    from keras_vit.training import torch_steps
elif keras.backend.backend() == "tensorflow":
    from keras_vit.training import tensorflow_steps


@dataclasses.dataclass(frozen=True)
class _Weights:
    """Weights that an optimizer moves. Keras takes a tuple of them for a part of its state."""

    variables: tuple[Any, ...]


class _Layerwise(keras.optimizers.Optimizer):
    """An optimizer whose learning rate and weight decay depend on the path of a variable.

    `apply` replaces that of Keras, which decays all variables at one rate, averages weights after
    each batch instead of each update, and under TensorFlow's strategies clips the gradients of each
    replica before it sums them (`support/fixes/faults.py`). Keras keeps the options, the
    averages, the sums of gradients, and the count of batches.
    """

    def __init__(
        self,
        learning_rate: Any,
        *,
        multipliers: Mapping[str, float] | None = None,
        decays: str = r"kernel$",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if self.ema_overwrite_frequency:
            raise ConfigError(
                f"{type(self).__name__} has no ema_overwrite_frequency; "
                "keras.callbacks.SwapEMAWeights puts the averages into the model."
            )
        for pattern in (*(multipliers or {}), decays):
            check_pattern(pattern)
        self.multipliers = dict(multipliers or {})
        self.decays = decays
        self.batches = self.variables[0]  # Keras's `iterations` counts updates
        self.sum_over_processes = False  # `keras_vit.distribution.ddp` sets it

    def build(self, variables: list[Any]) -> None:
        """Creates the state of the variables, and looks up their multipliers and decays."""
        if self.built:
            return
        super().build(variables)
        self.trained = _Weights(tuple(variables))
        self.indices = {id(variable): index for index, variable in enumerate(variables)}
        patterns = self.multipliers.items()
        self.multiplier_of = tuple(
            float(next((m for pattern, m in patterns if re.search(pattern, v.path)), 1))
            for v in variables
        )
        self.is_decayed = tuple(bool(re.search(self.decays, v.path)) for v in variables)
        self.averages = self._state("average")
        self.sums = self._state("gradient_accumulator")
        self.build_moments(variables)

    def build_moments(self, variables: list[Any]) -> None:
        """Creates the running means of the gradients."""
        raise NotImplementedError

    def _state(self, name: str) -> tuple[Any, ...]:
        """Returns the optimizer's variables of a name, one per weight, or an empty tuple."""
        return tuple(each for each in self.variables if each.name.endswith(f"_{name}"))

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Updates the variables by the gradients of one batch.

        Gradients of replicas and processes are summed before they are accumulated and clipped, so
        that all of them make the same update, which is that of one device.

        Args:
            grads: a gradient for each variable; None for variables that stay.
            trainable_variables: variables that the optimizer was built for; None for all of them.
        """
        if not self.built and trainable_variables is not None:
            self.build(list(trainable_variables))
        variables = self.trained.variables if trainable_variables is None else trainable_variables
        gradients, variables = _present(grads, variables)
        if self.loss_scale_factor is not None:
            gradients = [gradient / self.loss_scale_factor for gradient in gradients]
        gradients = self._average_over_devices(gradients)
        if self.gradient_accumulation_steps:
            self._accumulate(gradients, variables)
        else:
            self._update(gradients, variables)
        if self.use_ema:
            self._average()
        for variable in variables:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        self.batches.assign_add(1)

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Puts the averages into the weights when `fit` ends.

        Keras puts the same arrays into both, and JAX refuses them in the next `fit`
        (`support/fixes/faults.py`).
        """
        super().finalize_variable_values(var_list)
        if self.use_ema and keras.backend.backend() == "jax":
            for variable in var_list:
                variable.assign(ops.copy(variable))

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Refuses the call: `decays` chooses the variables that decay.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"{type(self).__name__} has no exclude_from_weight_decay; its argument decays= is a "
            "pattern of the paths of the variables that decay, such as decays=r'mlp/.*kernel$'."
        )

    def _average_over_devices(self, gradients: list[Any]) -> list[Any]:
        """Returns the gradients of all processes or replicas together."""
        if self.sum_over_processes:
            from keras_vit.distribution.torchrun import mean_over_processes

            return mean_over_processes(gradients)
        if keras.backend.backend() == "tensorflow":
            return tensorflow_steps.sum_over_replicas(gradients)
        return gradients

    def _accumulate(self, gradients: list[Any], variables: Sequence[Any]) -> None:
        """Sums up gradients; the last batch of an update moves the weights by their mean."""
        sums = [self.sums[self.indices[id(variable)]] for variable in variables]
        for total, gradient in zip(sums, gradients, strict=True):
            self.assign_add(total, gradient)

        def update() -> None:
            self._update([total / self.gradient_accumulation_steps for total in sums], variables)
            for total in sums:
                self.assign(total, ops.zeros(total.shape, total.dtype))

        is_last = ops.equal((self.batches + 1) % self.gradient_accumulation_steps, 0)
        _change_if(is_last, update, [*variables, *self.variables])

    def _update(self, gradients: list[Any], variables: Sequence[Any]) -> None:
        """Clips the gradients and moves the weights by them."""
        if keras.backend.backend() == "torch" and self.global_clipnorm:
            gradients = torch_steps.clip(gradients, variables, self.global_clipnorm)
        else:
            gradients = self._clip(gradients)
        self.move_all(gradients, variables)

    def move_all(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Moves the weights by gradients that are already clipped."""
        rate = self.learning_rate
        on_torch = keras.backend.backend() == "torch"
        if on_torch and torch_steps.update(self, gradients, variables, rate):
            return
        for gradient, variable in zip(gradients, variables, strict=True):
            self.update_step(gradient, variable, rate)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its gradient, which is already clipped."""
        index = self.indices[id(variable)]
        rate = ops.cast(learning_rate, variable.dtype) * self.multiplier_of[index]
        if self.weight_decay and self.is_decayed[index]:
            self.assign_sub(variable, variable * (rate * self.weight_decay))
        self.move(ops.cast(gradient, variable.dtype), variable, rate, index)

    def move(self, gradient: Any, variable: Any, rate: Any, index: int) -> None:
        """Moves a variable by a gradient of its type, at its own rate and without decay."""
        raise NotImplementedError

    def _clip(self, gradients: list[Any]) -> list[Any]:
        """Returns the gradients clipped as the arguments ask; infinite norms become NaN."""
        if self.global_clipnorm:
            norm = ops.sqrt(sum(_sum_squares(gradient) for gradient in gradients))
            return [_shorten(gradient, norm, self.global_clipnorm) for gradient in gradients]
        if self.clipnorm:
            return [_shorten(g, ops.sqrt(_sum_squares(g)), self.clipnorm) for g in gradients]
        if self.clipvalue:
            return [ops.clip(g, -self.clipvalue, self.clipvalue) for g in gradients]
        return gradients

    def _average(self) -> None:
        """Averages the weights after each update; until the first one, the average is the weights.

        Updates and batches differ where several batches make one update.
        """
        batches, batch = self.gradient_accumulation_steps or 1, self.batches + 1
        share = ops.where(ops.equal(batch % batches, 0), 1.0 - self.ema_momentum, 0.0)
        share = ops.where(batch <= batches, 1.0, share)
        if keras.backend.backend() == "torch":
            torch_steps.average(self.averages, self.trained.variables, share)
            return
        for average, variable in zip(self.averages, self.trained.variables, strict=True):
            part = ops.cast(share, variable.dtype)
            self.assign(average, (1 - part) * average + part * variable)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types."""
        own = {"multipliers": dict(self.multipliers), "decays": self.decays}
        return {**super().get_config(), **own}


def check_pattern(pattern: str) -> None:
    """Raises `ConfigError` unless a pattern is a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{pattern!r} is no regular expression for a variable's path: {error}."
        ) from error


def _present(grads: Sequence[Any], variables: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Returns the gradients that are not None, and their variables."""
    pairs = list(zip(grads, variables, strict=True))
    missing = [variable.path for gradient, variable in pairs if gradient is None]
    if len(missing) == len(pairs):
        raise ValueError("No gradients provided for any variable.")
    if missing:
        warn(f"The loss has no gradient for the variables {missing}.")
    present = [pair for pair in pairs if pair[0] is not None]
    return [gradient for gradient, _ in present], [variable for _, variable in present]


def _change_if(condition: Any, change: Callable[[], None], variables: Sequence[Any]) -> None:
    """Calls `change`, whose assignments to the variables count only if the condition holds."""
    if keras.backend.backend() != "jax":
        ops.cond(condition, change, lambda: None)
        return
    before = [variable.value for variable in variables]  # JAX cannot assign in a branch
    change()
    for variable, value in zip(variables, before, strict=True):
        variable.assign(ops.where(condition, variable.value, value))


def _sum_squares(gradient: Any) -> Any:
    return ops.sum(ops.square(ops.cast(gradient, "float32")))


def _shorten(gradient: Any, norm: Any, longest: float) -> Any:
    scale = longest * ops.minimum(1.0 / norm, 1.0 / longest) + (norm - norm)
    return gradient * ops.cast(scale, gradient.dtype)


@keras.saving.register_keras_serializable("keras_vit")
class LayerwiseSGD(_Layerwise):
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

    Raises:
        ConfigError: a pattern is no regular expression.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if not 0 <= momentum <= 1:
            raise ConfigError(f"momentum={momentum!r}: expected a number in [0, 1].")
        self.momentum = momentum
        self.nesterov = nesterov

    def build_moments(self, variables: list[Any]) -> None:
        """Creates the traces of the gradients, if there is momentum."""
        self.momentums = self.add_optimizer_variables(
            variables if self.momentum else [], "momentum"
        )

    def move(self, gradient: Any, variable: Any, rate: Any, index: int) -> None:
        """Moves a variable by a gradient of its type, at its own rate and without decay."""
        step = gradient
        if self.momentum:
            trace = self.momentums[index]
            if keras.backend.backend() == "tensorflow":
                tensorflow_steps.sgd(self, variable, gradient, trace, rate)
                return
            step = self.momentum * trace + gradient
            self.assign(trace, step)
            if self.nesterov:
                step = gradient + self.momentum * step
        self.assign_sub(variable, rate * step)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types."""
        return {**super().get_config(), "momentum": self.momentum, "nesterov": self.nesterov}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "LayerwiseSGD":
        """Rebuilds an optimizer from `get_config()`'s output, also from that of version 0.1.0."""
        config = {name: value for name, value in config.items() if name != "momentum_dtype"}
        return super().from_config(config, custom_objects)


@keras.saving.register_keras_serializable("keras_vit")
class LayerwiseAdamW(_Layerwise):
    """AdamW with a learning rate per variable and weight decay on kernels alone.

        weight = weight - rate * (mean / (sqrt(variance) + epsilon) + weight_decay * weight)

    with mean and variance corrected for their start at zero, as in Algorithm 1 of Kingma and Ba
    (arXiv 1412.6980), optax and torch. `keras.optimizers.AdamW` adds epsilon before that
    correction, so that its first steps have in effect an epsilon 30 times as large.

    By default only kernels decay, as in big_vision; biases, norms, the class token and position
    embeddings do not.

    Args:
        learning_rate, weight_decay, beta_1, beta_2, epsilon, ...: as in
            `keras.optimizers.AdamW`.
        multipliers: `{pattern: factor}`; the learning rate of a variable is multiplied by the
            factor of the first pattern (a regular expression) found in its path.
        decays: pattern of the variables that `weight_decay` applies to.

    Raises:
        ConfigError: a pattern is no regular expression, or `amsgrad` is True.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float | None = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay=weight_decay, **kwargs)
        if amsgrad:
            raise ConfigError("LayerwiseAdamW has no amsgrad; use keras.optimizers.AdamW for it.")
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build_moments(self, variables: list[Any]) -> None:
        """Creates the running means of the gradients and of their squares."""
        self.means, self.squares = self.add_optimizer_variables(variables, ["momentum", "velocity"])

    def move(self, gradient: Any, variable: Any, rate: Any, index: int) -> None:
        """Moves a variable by a gradient of its type, at its own rate and without decay."""
        mean, variance = self.means[index], self.squares[index]
        wide = at_least_float32(variable)  # in bfloat16, 0.999 is 1
        if keras.backend.backend() == "tensorflow" and wide == keras.backend.standardize_dtype(
            variable.dtype
        ):
            tensorflow_steps.adam(self, variable, gradient, mean, variance, rate)
            return
        self.assign_add(mean, (gradient - mean) * (1 - self.beta_1))
        self.assign_add(variance, (ops.square(gradient) - variance) * (1 - self.beta_2))
        step = ops.cast(self.iterations + 1, wide)
        mean = mean / ops.cast(1 - ops.power(self.beta_1, step), variable.dtype)
        variance = variance / ops.cast(1 - ops.power(self.beta_2, step), variable.dtype)
        self.assign_sub(variable, rate * mean / (ops.sqrt(variance) + self.epsilon))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types."""
        names = ("beta_1", "beta_2", "epsilon")
        config = {**super().get_config(), **{name: getattr(self, name) for name in names}}
        return {**config, "amsgrad": False}  # as earlier versions and Keras write it
