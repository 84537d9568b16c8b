"""Adapts the losses of `compile` to logits or probabilities, and refuses metrics that do not fit.

`model.compile("adam", "sparse_categorical_crossentropy")` is in every tutorial of Keras. The string
stands for a loss of probabilities; with logits the loss silently becomes NaN. A model knows
whether it returns logits, so its `compile` sets `from_logits` of such a loss, with a warning. A
metric that takes probabilities, such as AUC, is refused with the remedy.

If another model wraps this one, the `compile` of the wrapper cannot know whether the outputs are
logits; `warn_of_logits` warns about this.
"""

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.config import DenseHead, Prediction, Task
from keras_vit.errors import ConfigError
from keras_vit.models.dense_losses import choose_loss, choose_metrics
from keras_vit.support.text import warn

_CLASSES: dict[Any, Any] = {
    keras.losses.sparse_categorical_crossentropy: keras.losses.SparseCategoricalCrossentropy,
    keras.losses.categorical_crossentropy: keras.losses.CategoricalCrossentropy,
    keras.losses.categorical_focal_crossentropy: keras.losses.CategoricalFocalCrossentropy,
    keras.losses.binary_crossentropy: keras.losses.BinaryCrossentropy,
    keras.losses.binary_focal_crossentropy: keras.losses.BinaryFocalCrossentropy,
    keras.losses.kl_divergence: keras.losses.KLDivergence,
    keras.losses.dice: keras.losses.Dice,
    keras.losses.tversky: keras.losses.Tversky,
    keras.metrics.binary_accuracy: keras.metrics.BinaryAccuracy,
}
"""Functions of Keras that take probabilities, and their classes."""

_OF_PROBABILITIES = (
    *_CLASSES.values(),
    keras.metrics.AUC,
    keras.metrics.BinaryCrossentropy,
    keras.metrics.BinaryIoU,
    keras.metrics.CategoricalCrossentropy,
    keras.metrics.F1Score,
    keras.metrics.FBetaScore,
    keras.metrics.FalseNegatives,
    keras.metrics.FalsePositives,
    keras.metrics.KLDivergence,
    keras.metrics.Precision,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.Recall,
    keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SparseCategoricalCrossentropy,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.TrueNegatives,
    keras.metrics.TruePositives,
)
"""Losses and metrics of Keras that take probabilities; some take logits with `from_logits=True`."""

_CROSSENTROPY = ("crossentropy", "ce")
"""Keras's names for the cross-entropy that fits the labels."""

_ACTIVATION = (
    'build or load it with classifier_activation="softmax" ("sigmoid" for one logit or multi-label)'
)


def adapt_losses(
    prediction: Prediction, dense: DenseHead | None, loss: Any, metrics: Any, weighted_metrics: Any
) -> tuple[Any, Any, Any]:
    """Adapts loss, metrics and weighted metrics of `compile` to a model's outputs.

    They are returned unchanged for a model without a head, and for regression, where any loss or
    metric may be meant.

    Raises:
        ConfigError: `loss="auto"` for a model without a head; a loss or metric takes
            probabilities and cannot take the logits that the model returns; or it compares several
            classes, and the model has one output.
    """
    is_auto = isinstance(loss, str) and loss == "auto"
    if is_auto and prediction.num_classes == 0:
        raise ConfigError('loss="auto" is the loss of the head; this model has none.')
    if dense is not None:
        loss = choose_loss(dense, prediction.returns_logits) if is_auto else loss
        metrics, weighted_metrics = (
            choose_metrics(dense, prediction) if isinstance(own, str) and own == "auto" else own
            for own in (metrics, weighted_metrics)
        )
        is_auto = False
    if prediction.predicts_values or prediction.num_classes == 0:
        return keras.losses.MeanSquaredError() if is_auto else loss, metrics, weighted_metrics
    if prediction.num_classes == 1:
        _each([loss, metrics, weighted_metrics], _refuse_several_classes)
    from_logits = prediction.returns_logits
    has_sigmoids = prediction.task == "multi_label" or prediction.is_binary
    if is_auto:
        kind = keras.losses.BinaryCrossentropy if has_sigmoids else SingleLabelCrossentropy
        loss = kind(from_logits=from_logits)
    else:
        loss = _each(loss, lambda one: _fit_loss(one, from_logits))

    def fit_metric(metric: Any) -> Any:
        is_accuracy = str(metric).lower() in ("accuracy", "acc")  # as Keras reads it
        if is_accuracy and has_sigmoids:
            return keras.metrics.BinaryAccuracy(metric, threshold=0.0 if from_logits else 0.5)
        if from_logits and not is_accuracy:
            _check_metric(metric)
        return metric

    return loss, _each(metrics, fit_metric), _each(weighted_metrics, fit_metric)


@functools.cache
def warn_of_logits() -> None:
    """Warns once per process that a model that returns logits was called inside another model."""
    warn(
        "A VisionTransformer that returns logits was called inside another model, whose compile() "
        f"cannot know that the outputs are logits: {_ACTIVATION}, or pass from_logits=True to the "
        "losses and metrics: keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
    )


def _fit_loss(loss: Any, from_logits: bool) -> Any:
    """Sets `from_logits` of a cross-entropy of Keras; returns other losses unchanged."""
    settings = _read_settings(loss, keras.losses.get)
    if settings is None or settings.get("from_logits", False) == from_logits:
        return loss
    if "from_logits" not in settings:
        raise ConfigError(
            f"loss={_name(loss)} takes probabilities, and the model returns logits: "
            f'{_ACTIVATION}, or give loss="auto" or a cross-entropy of keras.losses with '
            "from_logits=True."
        )
    takes, returns = ("logits", "probabilities") if not from_logits else ("probabilities", "logits")
    warn(
        f"loss={_name(loss)} takes {takes}, and the model returns {returns}: it is used with "
        f"from_logits={from_logits}."
    )
    standard = _standard(loss, keras.losses.get)
    return standard.from_config({**settings, "from_logits": from_logits})


def _refuse_several_classes(value: Any) -> None:
    if "categorical" in _name(value).lower():
        raise ConfigError(
            f"{_name(value)} compares the outputs of several classes, and the model has one: use "
            'loss="auto" or "binary_crossentropy", and metrics=["accuracy"].'
        )


def _check_metric(metric: Any) -> None:
    """Refuses a metric of Keras that would mistake logits for probabilities."""
    settings = _read_settings(metric, keras.metrics.get)
    if settings is None or settings.get("from_logits"):
        return
    threshold = settings.get("thresholds", settings.get("threshold"))
    if threshold is not None and not np.any(threshold):  # a probability of 0.5 is a logit of 0
        return
    raise ConfigError(
        f"The metric {_name(metric)} takes probabilities, and the model returns logits: "
        f"{_ACTIVATION}, or pass from_logits=True to a metric that has this argument."
    )


def _read_settings(value: Any, get: Any) -> dict[str, Any] | None:
    """Returns the arguments of a loss or metric of Keras that takes probabilities, else None."""
    if str(value).lower() in _CROSSENTROPY:
        return {}
    standard = _standard(value, get)
    return standard.get_config() if type(standard) in _OF_PROBABILITIES else None


def _standard(value: Any, get: Any) -> Any:
    """Returns Keras's object for a name, dict, function or class; or else the value itself."""
    standard = get(value) if isinstance(value, (str, dict)) else value
    if isinstance(standard, Hashable):
        standard = _CLASSES.get(standard, standard)
    return standard() if standard in _OF_PROBABILITIES else standard


@keras.saving.register_keras_serializable("keras_vit")
class SingleLabelCrossentropy(keras.losses.SparseCategoricalCrossentropy):
    """Categorical cross-entropy for labels as indices, `(batch,)`, or one-hot, `(batch, classes)`.

    Args:
        **options: arguments of `keras.losses.SparseCategoricalCrossentropy`.
    """

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss of each image, `(batch,)`.

        Raises:
            ConfigError: one-hot labels have another number of classes than the model.
        """
        if len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] != 1:
            if y_true.shape[-1] not in (None, y_pred.shape[-1]):
                raise ConfigError(
                    f"One-hot labels have {y_true.shape[-1]} classes; the model has "
                    f"{y_pred.shape[-1]}."
                )
            rows = keras.ops.reshape(y_true, keras.ops.shape(y_pred))  # TensorFlow may not know it
            return keras.losses.categorical_crossentropy(rows, y_pred, self.from_logits)
        return super().call(y_true, y_pred)


@keras.saving.register_keras_serializable("keras_vit")
class MultiLabelCrossentropy(keras.losses.Loss):
    """Binary cross-entropy for multi-label classification, with weights for positive labels.

    The loss of an image is the mean over the classes.

    Args:
        positive_weights: factor of the loss of positive labels, per class.
            `ImageData.positive_weights` computes the factors from class frequencies.
        from_logits: whether the model returns logits.
        **options: arguments of `keras.losses.Loss`.
    """

    def __init__(
        self, positive_weights: Sequence[float], from_logits: bool = True, **options: Any
    ) -> None:
        super().__init__(**{"name": "multi_label_crossentropy", **options})
        self.positive_weights = [float(weight) for weight in positive_weights]
        self.from_logits = from_logits

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss of each image, `(batch,)`."""
        labels = keras.ops.cast(y_true, y_pred.dtype)
        weights = keras.ops.convert_to_tensor(self.positive_weights, y_pred.dtype)
        losses = keras.ops.binary_crossentropy(labels, y_pred, from_logits=self.from_logits)
        return keras.ops.mean(losses * (1 + labels * (weights - 1)), axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        own = {"positive_weights": self.positive_weights, "from_logits": self.from_logits}
        return {**super().get_config(), **own}


def per_class(outputs: Any, prediction: Prediction, *, stage: str = "output", ops: Any = np) -> Any:
    """Returns the outputs of a head with one column per class, `(..., num_answers)`.

    A single output for two classes is expanded: a logit to the columns 0 and logit, whose softmax
    is the sigmoid of the logit; a probability p to the columns 1 - p and p.

    Args:
        outputs: the outputs, `(..., num_classes)`.
        prediction: task and activation of the outputs.
        stage: `"output"` for what the model returns, or `"logits"`.
        ops: the module that computes, `numpy` or `keras.ops`.
    """
    if not prediction.is_binary:
        return outputs
    are_logits = prediction.returns_logits or stage == "logits"
    first = ops.zeros_like(outputs) if are_logits else 1 - outputs
    return ops.concatenate([first, outputs], axis=-1)


def compute_probabilities(logits: np.ndarray, task: Task = "single_label") -> np.ndarray:
    """Returns the softmax of logits `(..., classes)`, or their sigmoids if multi-label."""
    if task == "multi_label":
        return np.exp(-np.logaddexp(0, -logits))  # accurate also for small probabilities
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def _each(value: Any, change: Any) -> Any:
    """Applies `change` to a value, or to each value in a list or dict."""
    if isinstance(value, dict) and "class_name" not in value:
        return {key: _each(one, change) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each(one, change) for one in value]
    return None if value is None else change(value)


def _name(loss: Any) -> str:
    return repr(loss) if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
