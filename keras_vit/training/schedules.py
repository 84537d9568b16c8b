"""Learning-rate schedules that Keras lacks; recipes with a cosine use Keras's `CosineDecay`."""

from typing import Any

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule


@keras.saving.register_keras_serializable("keras_vit")
class LinearDecay(LearningRateSchedule):
    """Linear warm-up from 0, then a linear decay (`decay_type="linear"` of `vit_jax/utils.py`).

    Args:
        learning_rate: peak learning rate, reached after `warmup_steps`.
        decay_steps: steps from the peak to the end.
        warmup_steps: steps before the peak.
        end: learning rate from `warmup_steps + decay_steps` on.

    >>> rate = LinearDecay(1.0, decay_steps=10, warmup_steps=4, end=0.0)
    >>> [float(rate(step)) for step in (0, 2, 4, 9, 14)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def __init__(
        self, learning_rate: float, decay_steps: int, warmup_steps: int = 0, end: float = 1e-5
    ) -> None:
        self.learning_rate = learning_rate
        self.decay_steps = decay_steps
        self.warmup_steps = warmup_steps
        self.end = end

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate of update `step`, counted from 0."""
        step = ops.cast(step, "float32")
        left = 1 - ops.clip((step - self.warmup_steps) / self.decay_steps, 0.0, 1.0)
        rate = self.end + (self.learning_rate - self.end) * left
        return rate * ops.minimum(1.0, step / self.warmup_steps) if self.warmup_steps else rate

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "learning_rate": self.learning_rate,
            "decay_steps": self.decay_steps,
            "warmup_steps": self.warmup_steps,
            "end": self.end,
        }


@keras.saving.register_keras_serializable("keras_vit")
class PerUpdate(LearningRateSchedule):
    """A schedule over weight updates, for updates of several batches.

    Keras counts batches: with `gradient_accumulation_steps=8` another schedule would end after an
    eighth of the updates.

    Args:
        schedule: a schedule over updates.
        accumulate: batches per update.
    """

    def __init__(self, schedule: LearningRateSchedule, accumulate: int) -> None:
        self.schedule = schedule
        self.accumulate = accumulate

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate of the update that batch `step` belongs to."""
        return self.schedule(ops.floor_divide(step, self.accumulate))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        schedules = keras.optimizers.schedules
        return {"schedule": schedules.serialize(self.schedule), "accumulate": self.accumulate}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PerUpdate":
        """Rebuilds a schedule from `get_config()`'s output."""
        return cls(keras.optimizers.schedules.deserialize(config["schedule"]), config["accumulate"])
