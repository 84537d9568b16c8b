"""Keras's SGD and AdamW with a separate learning rate and weight decay for each variable.

Both clip by the norm of all gradients together, as Keras's optimizers do. Keras's
`MultiOptimizer`, which also gives variables different rates, clips each group separately.
"""

import re
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_vit.errors import ConfigError
from keras_vit.fixes.keras_internals import adam_moments, index_of, layout_of
from keras_vit.kernels.reference import at_least_float32


class _PerVariable:
    """An optimizer whose learning rate and weight decay depend on the path of a variable."""

    def __init__(
        self,
        *args: Any,
        multipliers: Mapping[str, float] | None = None,
        decays: str = r"kernel$",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        for pattern in (*(multipliers or {}), decays):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(
                    f"{pattern!r} is no regular expression for a variable's path: {error}."
                ) from error
        self.multipliers = dict(multipliers or {})
        self.decays = decays
        self._has_native_steps = True
        self.sum_over_processes = False  # `keras_vit.distribution.ddp` sets it

    def build(self, variables: list[Any]) -> None:
        """Looks up the multiplier and the decay of each variable."""
        if not self.built:  # type: ignore[attr-defined]
            self.multiplier_of = tuple(self._multiplier(v.path) for v in variables)
            self.is_decayed = tuple(bool(re.search(self.decays, v.path)) for v in variables)
        super().build(variables)  # type: ignore[misc]

    def _multiplier(self, path: str) -> float:
        """Returns the multiplier of the first pattern found in the path, or 1."""
        found = (m for pattern, m in self.multipliers.items() if re.search(pattern, path))
        return float(next(found, 1.0))

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable by its gradient, which is already clipped."""
        index = index_of(self, variable)
        rate = ops.cast(learning_rate, variable.dtype) * self.multiplier_of[index]
        if self.weight_decay and self.is_decayed[index]:  # type: ignore[attr-defined]
            self.assign_sub(variable, variable * (rate * self.weight_decay))  # type: ignore[attr-defined]
        self._move(ops.cast(gradient, variable.dtype), variable, rate, index)

    def _move(self, gradient: Any, variable: Any, rate: Any, index: int) -> None:
        raise NotImplementedError

    def _apply_weight_decay(self, variables: list[Any]) -> None:
        """Has no effect, because `update_step` decays each variable at the variable's own rate."""

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        """Clips; under torch, `_backend_update_step` clips by the norm of all gradients."""
        if keras.backend.backend() == "torch" and self.global_clipnorm:  # type: ignore[attr-defined]
            return grads
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def _backend_update_step(
        self, grads: list[Any], trainable_variables: list[Any], learning_rate: Any
    ) -> None:
        """Updates all variables; under torch in one pass instead of by `update_step`."""
        if keras.backend.backend() == "torch":
            from keras_vit.finetune import torch_steps

            if self.global_clipnorm:  # type: ignore[attr-defined]
                grads = torch_steps.clipped(grads, trainable_variables, self.global_clipnorm)  # type: ignore[attr-defined]
            if self._has_native_steps and torch_steps.update(
                self, grads, trainable_variables, learning_rate
            ):
                return
        super()._backend_update_step(grads, trainable_variables, learning_rate)  # type: ignore[misc]

    def _update_model_variables_moving_average(self, trainable_variables: list[Any]) -> None:
        """Averages the weights after each update; Keras averages them after each batch.

        Updates and batches differ with gradient accumulation, where several batches make one
        update. Until the first update the average is the initial weights.
        """
        if not self.use_ema:  # type: ignore[attr-defined]
            return
        kept = self.kept_of_the_average()
        if keras.backend.backend() == "torch":
            from keras_vit.finetune import torch_steps

            torch_steps.average(self.averages, kept)
            return
        for variable, average in self.averages:
            share = ops.cast(kept, variable.dtype)
            self.assign(average, share * average + (1 - share) * variable)  # type: ignore[attr-defined]

    @property
    def batches_seen(self) -> Any:
        """Number of batches up to and including the present batch."""
        return self._iterations + 1  # type: ignore[attr-defined]  # the public one counts updates

    @property
    def averages(self) -> list[tuple[Any, Any]]:
        """The trained weights that have a moving average, each with its average."""
        pairs = zip(
            self._trainable_variables,  # type: ignore[attr-defined]
            self._model_variables_moving_average,  # type: ignore[attr-defined]
            strict=True,
        )
        return [(variable, average) for variable, average in pairs if average is not None]

    def kept_of_the_average(self) -> Any:
        """Returns the share of itself that a moving average keeps in the present batch."""
        batches = self.gradient_accumulation_steps or 1  # type: ignore[attr-defined]
        seen = self.batches_seen
        kept = ops.where(seen % batches == 0, self.ema_momentum, 1.0)  # type: ignore[attr-defined]
        return ops.where(seen <= batches, 0.0, kept)

    def clip(self, gradients: list[Any]) -> list[Any]:
        """Returns the gradients clipped as the arguments ask."""
        return self._clip_gradients(gradients)

    def _backend_apply_gradients(self, grads: list[Any], trainable_variables: list[Any]) -> None:
        """Updates the weights; gradients of replicas or processes are summed before all else."""
        if self.sum_over_processes:
            from keras_vit.distribution.torchrun import mean_over_processes

            grads = mean_over_processes(grads)
        if self._is_replicated():
            from keras_vit.finetune import mirrored

            mirrored.apply(self, grads, trainable_variables)
        else:
            super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    def _is_replicated(self) -> bool:
        if keras.backend.backend() != "tensorflow":
            return False
        from keras_vit.finetune import mirrored

        return mirrored.is_replicated()

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types."""
        config = super().get_config()  # type: ignore[misc]
        return {**config, "multipliers": dict(self.multipliers), "decays": self.decays}


@keras.saving.register_keras_serializable("keras_vit")
class LayerwiseSGD(_PerVariable, keras.optimizers.SGD):
    """Momentum SGD as in the paper's code, with a learning rate per variable.

        trace  = momentum * trace + gradient
        weight = weight - rate * (trace + weight_decay * weight)

    The momentum of `keras.optimizers.SGD` sums `rate * gradient` instead. The results are the same
    while the rate is constant. Under a schedule, Keras weights each gradient by the rate of its own
    step, and after a warm-up of a few hundred steps the weights differ visibly.

    Args:
        learning_rate, momentum, nesterov, ...: arguments of `keras.optimizers.SGD`.
        momentum_dtype: type that the traces are stored in, such as `"bfloat16"`, with which the
            paper's code saves memory (`accumulator_dtype` of `optax.sgd`); the gradient is added
            in the type of the weights. None for the type of the weights.
        multipliers: `{pattern: factor}`; the learning rate of a variable is multiplied by the
            factor of the first pattern (a regular expression) found in its path.
        decays: pattern of the variables that `weight_decay` applies to. The decay is
            decoupled and multiplied by the variable's own learning rate.

    Raises:
        ConfigError: a pattern is no regular expression.
    """

    def __init__(self, *args: Any, momentum_dtype: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.momentum_dtype = momentum_dtype
        self._has_native_steps = momentum_dtype is None

    def add_variable_from_reference(
        self, reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
        """Creates a variable for a weight; traces of momentum have the type `momentum_dtype`."""
        if name != "momentum" or self.momentum_dtype is None:
            return super().add_variable_from_reference(reference_variable, name, initializer)
        path = reference_variable.path.replace("/", "_")
        return self.add_variable(
            reference_variable.shape,
            initializer,
            self.momentum_dtype,
            layout=layout_of(reference_variable),
            name=f"{path}_{name}",
        )

    def _move(self, gradient: Any, variable: Any, rate: Any, index: int) -> None:
        step = gradient
        if self.momentum:
            trace = self.momentums[index]
            if keras.backend.backend() == "tensorflow" and self._has_native_steps:
                from keras_vit.finetune import tensorflow_steps

                tensorflow_steps.sgd(self, variable, gradient, trace, rate)
                return
            total = ops.cast(self.momentum * trace, variable.dtype) + gradient
            self.assign(trace, ops.cast(total, trace.dtype))
            step = gradient + self.momentum * total if self.nesterov else total
        self.assign_sub(variable, rate * step)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as plain JSON types."""
        return {**super().get_config(), "momentum_dtype": self.momentum_dtype}


@keras.saving.register_keras_serializable("keras_vit")
class LayerwiseAdamW(_PerVariable, keras.optimizers.AdamW):
    """AdamW with a learning rate per variable and weight decay on kernels alone.

        weight = weight - rate * (mean / (sqrt(variance) + epsilon) + weight_decay * weight)

    with mean and variance corrected for their start at zero, as in Algorithm 1 of Kingma and Ba
    (arXiv 1412.6980), optax and torch. `keras.optimizers.AdamW` adds epsilon before that
    correction, so that its first steps have in effect an epsilon 30 times as large.

    By default only kernels decay, as in big_vision; biases, norms, the class token and position
    embeddings do not. A saved model keeps `decays`; it loses the exclusions by
    `exclude_from_weight_decay` of Keras's AdamW.

    Args:
        learning_rate, weight_decay, beta_1, beta_2, epsilon, ...: as in
            `keras.optimizers.AdamW`.
        multipliers: `{pattern: factor}`; the learning rate of a variable is multiplied by the
            factor of the first pattern (a regular expression) found in its path.
        decays: pattern of the variables that `weight_decay` applies to.

    Raises:
        ConfigError: a pattern is no regular expression, or `amsgrad` is True.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.amsgrad:
            raise ConfigError("LayerwiseAdamW has no amsgrad; use keras.optimizers.AdamW for it.")

    def _move(self, gradient: Any, variable: Any, rate: Any, index: int) -> None:
        mean, variance = adam_moments(self, index)
        wide = at_least_float32(variable)  # in bfloat16, 0.999 is 1
        if keras.backend.backend() == "tensorflow" and wide == keras.backend.standardize_dtype(
            variable.dtype
        ):
            from keras_vit.finetune import tensorflow_steps

            tensorflow_steps.adam(self, variable, gradient, mean, variance, rate)
            return
        self.assign_add(mean, (gradient - mean) * (1 - self.beta_1))
        self.assign_add(variance, (ops.square(gradient) - variance) * (1 - self.beta_2))
        step = ops.cast(self.iterations + 1, wide)
        mean = mean / ops.cast(1 - ops.power(self.beta_1, step), variable.dtype)
        variance = variance / ops.cast(1 - ops.power(self.beta_2, step), variable.dtype)
        self.assign_sub(variable, rate * mean / (ops.sqrt(variance) + self.epsilon))
