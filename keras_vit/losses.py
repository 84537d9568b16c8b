"""Adapts cross-entropy losses and metrics of `compile` to the logits or probabilities of a model.

`model.compile("adam", "sparse_categorical_crossentropy")` is in every tutorial of Keras. The string
stands for a loss of probabilities; with logits the loss silently becomes NaN. A model knows
whether it returns logits, so its `compile` sets `from_logits` of such a loss, with a warning.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError, shown
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
    config: ViTConfig, loss: Any, metrics: Any, weighted_metrics: Any, by_class: bool = False
) -> tuple[Any, Any, Any]:
    """Returns loss, metrics and weighted metrics of `compile`, adapted to a model's outputs.

    A model without a head keeps them unchanged. `by_class` says that every class has a probability
    of its own, as in a model with thresholds.

    Raises:
        ConfigError: `loss="auto"` for a model without a head.
    """
    is_auto = isinstance(loss, str) and loss == "auto"
    if config.num_classes == 0 and is_auto:
        raise ConfigError('loss="auto" is the loss of the head; this model has none.')
    from_logits = config.classifier_activation is None
    if is_auto:
        name = "BinaryCrossentropy" if by_class else "SparseCategoricalCrossentropy"
        loss = getattr(keras.losses, name)(from_logits=from_logits)
    elif config.num_classes:
        loss = _each(loss, lambda one: _fit_loss(one, from_logits))

    def fit_metrics(values: Any) -> Any:
        return _each(values, lambda metric: _fit_metric(metric, loss, from_logits, by_class))

    return loss, fit_metrics(metrics), fit_metrics(weighted_metrics)


def _fit_loss(loss: Any, from_logits: bool) -> Any:
    """Returns a cross-entropy of Keras with this `from_logits`, and other losses as they are."""
    standard = keras.losses.get(loss) if isinstance(loss, (str, dict)) else loss
    if isinstance(standard, Hashable):
        standard = _CLASSES.get(standard, standard)
    if isinstance(standard, type) and standard in _CLASSES.values():
        standard = standard()
    if type(standard) not in _CLASSES.values():
        return loss
    settings = standard.get_config()  # Keras 3.16 has no attribute `from_logits`
    if settings["from_logits"] == from_logits:
        return standard
    takes, returns = ("logits", "probabilities") if not from_logits else ("probabilities", "logits")
    warn(
        f"loss={_name(loss)} is for {takes}; the model returns {returns}, so it is used with "
        f"from_logits={from_logits}.",
    )
    return type(standard).from_config({**settings, "from_logits": from_logits})


def _fit_metric(metric: Any, loss: Any, from_logits: bool, by_class: bool) -> Any:
    """Returns an accuracy or a cross-entropy for the model's outputs, other metrics as they are."""
    if metric in ("accuracy", "acc") and by_class:
        return keras.metrics.BinaryAccuracy(metric, threshold=0.0 if from_logits else 0.5)
    kind = _METRICS.get(type(loss)) if metric in ("crossentropy", "ce") else None
    if kind is None:
        by_name = isinstance(metric, str) and "entropy" in metric
        function = keras.losses.get(metric) if by_name else metric
        kind = _METRICS.get(_CLASSES.get(function)) if callable(function) else None
    if kind is None:
        return metric
    return kind(from_logits=from_logits, name=metric if isinstance(metric, str) else _name(metric))


@keras.saving.register_keras_serializable("keras_vit")
class ManyLabelsCrossentropy(keras.losses.Loss):
    """Binary cross-entropy, mean over classes, with a weight for the positive labels of each class.

    Args:
        positive_weights: factor of the loss for each class, where the label is 1.
            `ImageData.positive_weights` computes them from the numbers of images.
        from_logits: whether the model returns logits.
        **options: arguments of `keras.losses.Loss`.
    """

    def __init__(
        self, positive_weights: Sequence[float], from_logits: bool = True, **options: Any
    ) -> None:
        super().__init__(**{"name": "many_labels_crossentropy", **options})
        self.positive_weights = [float(weight) for weight in positive_weights]
        self.from_logits = from_logits

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss of each image, `(batch,)`."""
        labels = keras.ops.cast(y_true, y_pred.dtype)
        weights = keras.ops.convert_to_tensor(self.positive_weights, y_pred.dtype)
        losses = keras.ops.binary_crossentropy(labels, y_pred, from_logits=self.from_logits)
        return keras.ops.mean(losses * (1 + labels * (weights - 1)), axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {"positive_weights": self.positive_weights, "from_logits": self.from_logits}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("keras_vit")
class F1OfLogits(keras.metrics.F1Score):
    """`keras.metrics.F1Score` of the sigmoids of logits; Keras's own takes probabilities."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Adds a batch of labels and logits, `(batch, classes)`."""
        return super().update_state(y_true, keras.ops.sigmoid(y_pred), sample_weight)


def many_labels_loss(
    config: ViTConfig, positive_weights: Sequence[float] | None, label_smoothing: float
) -> keras.losses.Loss:
    """Returns the loss of a multi-label model for its logits or probabilities.

    Raises:
        ConfigError: the weights are not one positive number per class, or come with smoothing.
    """
    from_logits = config.classifier_activation is None
    if positive_weights is None:
        return keras.losses.BinaryCrossentropy(from_logits, label_smoothing=label_smoothing)
    weights = np.asarray(positive_weights)
    are_numbers = weights.shape == (config.num_classes,) and weights.dtype.kind in "fiu"
    if not are_numbers or not ((weights > 0) & (weights < np.inf)).all():
        raise ConfigError(
            f"positive_weights={shown(positive_weights, quoted=False)}: expected a number above 0 "
            f"for each of {config.num_classes} classes."
        )
    if label_smoothing:
        raise ConfigError("label_smoothing and positive_weights exclude each other: choose one.")
    return ManyLabelsCrossentropy(positive_weights, from_logits)


def many_labels_metrics(config: ViTConfig) -> list[keras.metrics.Metric]:
    """Returns the metrics of a multi-label training, both means over classes.

    They are the area below the curve of precision and recall, and F1 at a probability of 0.5.
    """
    from_logits = config.classifier_activation is None
    f1 = F1OfLogits if from_logits else keras.metrics.F1Score
    area = keras.metrics.AUC(
        curve="PR",
        multi_label=True,
        num_labels=config.num_classes,
        from_logits=from_logits,
        name="pr_auc",
    )
    return [area, f1(average="macro", threshold=0.5, name="f1")]


class FirstLoss(keras.callbacks.Callback):
    """A callback of the recipes that warns if a training begins with a loss far above chance.

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


def probabilities_of(logits: np.ndarray, by_class: bool = False) -> np.ndarray:
    """Returns the softmax of logits `(..., classes)`; with `by_class` the sigmoid of each."""
    if by_class:
        return np.exp(-np.logaddexp(0, -logits))  # exact for small ones too
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def _each(value: Any, change: Any) -> Any:
    """Returns `change` applied to a value, or to each value in a list or dict."""
    if isinstance(value, dict) and "class_name" not in value:
        return {key: _each(one, change) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each(one, change) for one in value]
    return None if value is None else change(value)


def _name(loss: Any) -> str:
    return repr(loss) if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
