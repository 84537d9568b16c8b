"""A `compile` that adapts cross-entropy losses to the logits or probabilities of the model.

`model.compile("adam", "sparse_categorical_crossentropy")` is in every tutorial of Keras. The string
stands for a loss of probabilities; with logits the loss silently becomes NaN. A model knows
whether it returns logits, so its `compile` sets `from_logits` of such a loss, with a warning.
"""

import math
from typing import Any

import keras

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.text import warn

_CLASSES: dict[Any, Any] = {
    keras.losses.sparse_categorical_crossentropy: keras.losses.SparseCategoricalCrossentropy,
    keras.losses.categorical_crossentropy: keras.losses.CategoricalCrossentropy,
    keras.losses.categorical_focal_crossentropy: keras.losses.CategoricalFocalCrossentropy,
    keras.losses.binary_crossentropy: keras.losses.BinaryCrossentropy,
    keras.losses.binary_focal_crossentropy: keras.losses.BinaryFocalCrossentropy,
}
"""Functions of Keras that can take logits or probabilities, and their classes."""

_METRICS: dict[Any, Any] = {
    keras.losses.SparseCategoricalCrossentropy: keras.metrics.SparseCategoricalCrossentropy,
    keras.losses.CategoricalCrossentropy: keras.metrics.CategoricalCrossentropy,
    keras.losses.BinaryCrossentropy: keras.metrics.BinaryCrossentropy,
}

_CAUSES = (
    "Usual causes: images in another range than the model's (model.preprocessor, rescale=True), a "
    "learning rate that is too high or without warm-up, labels that are not class numbers from 0 "
    "to num_classes - 1, or float16 without a LossScaleOptimizer."
)


def losses_of_head(
    config: ViTConfig, loss: Any, metrics: Any, weighted_metrics: Any
) -> tuple[Any, Any, Any]:
    """Returns loss, metrics and weighted metrics of `compile`, fit to a model's outputs.

    Raises:
        ConfigError: `loss="auto"` for a model without a head.
    """
    chosen = loss_for(loss, config)

    def fitted(given: Any) -> Any:
        return _each(given, lambda metric: _metric_for(metric, chosen, config))

    return chosen, fitted(metrics), fitted(weighted_metrics)


def loss_for(loss: Any, config: ViTConfig) -> Any:
    """Returns the loss to compile with; for a model without a head, `loss` unchanged."""
    is_auto = isinstance(loss, str) and loss == "auto"
    if config.num_classes == 0:
        if is_auto:
            raise ConfigError('loss="auto" is the loss of the head; this model has none.')
        return loss
    from_logits = config.classifier_activation is None
    if is_auto:
        by_class = config.num_classes == 1 or config.classifier_activation == "sigmoid"
        name = "BinaryCrossentropy" if by_class else "SparseCategoricalCrossentropy"
        return getattr(keras.losses, name)(from_logits=from_logits)
    return _each(loss, lambda one: _one_loss(one, from_logits))


def _one_loss(loss: Any, from_logits: bool) -> Any:
    found = loss
    if isinstance(loss, str):
        found = keras.losses.get(loss)
    if found in _CLASSES:
        found = _CLASSES[found]()
    elif isinstance(found, type) and found in _CLASSES.values():
        found = found()
    if type(found) not in _CLASSES.values():
        return loss
    settings = found.get_config()  # Keras 3.16 has no attribute `from_logits`
    if settings["from_logits"] == from_logits:
        return found
    takes, returns = ("logits", "probabilities") if not from_logits else ("probabilities", "logits")
    warn(
        f"loss={_name(loss)} is for {takes}; the model returns {returns}, so it is used with "
        f"from_logits={from_logits}.",
    )
    return type(found).from_config({**settings, "from_logits": from_logits})


def _metric_for(metric: Any, loss: Any, config: ViTConfig) -> Any:
    from_logits = config.classifier_activation is None
    if metric in ("crossentropy", "ce") and type(loss) in _METRICS:
        return _METRICS[type(loss)](from_logits=from_logits, name=metric)
    if metric in ("accuracy", "acc") and config.num_classes == 1:
        return keras.metrics.BinaryAccuracy(metric, threshold=0.0 if from_logits else 0.5)
    function = (
        keras.losses.get(metric) if isinstance(metric, str) and "entropy" in metric else metric
    )
    by_class = _METRICS.get(_CLASSES.get(function)) if callable(function) else None
    if by_class is not None:
        name = metric if isinstance(metric, str) else function.__name__
        return by_class(from_logits=from_logits, name=name)
    return metric


class FirstLoss(keras.callbacks.Callback):
    """Warns if a training begins with a loss far above chance; recipes carry it.

    The cross-entropy of an untrained classifier is ln(classes); the limit is three times that. Only
    the loss of the first step is read.

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


def _each(value: Any, change: Any) -> Any:
    """Returns `change` applied to a value, or to each value in a list or dict."""
    if isinstance(value, dict) and "class_name" not in value:
        return {key: _each(one, change) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each(one, change) for one in value]
    return None if value is None else change(value)


def _name(loss: Any) -> str:
    return repr(loss) if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
