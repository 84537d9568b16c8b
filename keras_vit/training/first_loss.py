"""A callback that warns if the first loss of a training is far above chance."""

import math
from typing import Any

import keras

from keras_vit.support.text import warn

_CAUSES = (
    "Usual causes: pixels in another range than the model's (model.preprocessor, rescale=True), a "
    "learning rate that is too high or without warm-up, labels that are not class indices from 0 "
    "to num_classes - 1, or float16 without a LossScaleOptimizer."
)


class FirstLoss(keras.callbacks.Callback):
    """Warns if the first loss of a training is far above chance; the recipes add it.

    The cross-entropy of an untrained classifier is ln(classes); the limit is three times that. Only
    the loss of the first step is checked.

    Args:
        num_classes: number of classes of the model, at least 2.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self._chance = math.log(num_classes)
        self._is_first = True

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Checks the loss of the first step."""
        if not self._is_first or not logs or "loss" not in logs:
            return
        self._is_first = False
        loss = float(logs["loss"])
        if not loss <= 3 * self._chance:
            warn(
                f"The loss is {loss:g} after the first step; chance would be {self._chance:.3g}. "
                f"{_CAUSES}"
            )
