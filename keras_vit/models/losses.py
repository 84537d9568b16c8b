"""Adapts losses and metrics of `compile` to logits or probabilities; asks torch if it compiles.

`model.compile("adam", "sparse_categorical_crossentropy")` is in every tutorial of Keras. The string
stands for a loss of probabilities; with logits the loss silently becomes NaN. A model knows
whether it returns logits, so its `compile` sets `from_logits` of such a loss, with a warning. The
metrics of Keras that read probabilities, such as AUC, read those of the head.

A model around it has a `compile` of its own, which does not know the head: `OuterLoss` warns of
its losses and metrics of probabilities.
"""

import contextlib
import inspect
import itertools
import math
from collections.abc import Hashable, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError, shown
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
}
"""Functions of Keras that take probabilities, and their classes; the cross-entropies can take
logits."""

_METRICS: dict[Any, Any] = {
    keras.losses.SparseCategoricalCrossentropy: keras.metrics.SparseCategoricalCrossentropy,
    keras.losses.CategoricalCrossentropy: keras.metrics.CategoricalCrossentropy,
    keras.losses.BinaryCrossentropy: keras.metrics.BinaryCrossentropy,
}

_OF_PROBABILITIES: dict[Any, str | None] = {
    keras.metrics.AUC: None,
    keras.metrics.BinaryAccuracy: "sigmoid",
    keras.metrics.BinaryCrossentropy: "sigmoid",
    keras.metrics.BinaryIoU: None,
    keras.metrics.CategoricalCrossentropy: "softmax",
    keras.metrics.F1Score: None,
    keras.metrics.FBetaScore: None,
    keras.metrics.FalseNegatives: None,
    keras.metrics.FalsePositives: None,
    keras.metrics.KLDivergence: "softmax",
    keras.metrics.Precision: None,
    keras.metrics.PrecisionAtRecall: None,
    keras.metrics.Recall: None,
    keras.metrics.RecallAtPrecision: None,
    keras.metrics.SensitivityAtSpecificity: None,
    keras.metrics.SparseCategoricalCrossentropy: "softmax",
    keras.metrics.SpecificityAtSensitivity: None,
    keras.metrics.TrueNegatives: None,
    keras.metrics.TruePositives: None,
}
"""Metrics of Keras that read probabilities, and their activation; None for that of the head."""

_FUNCTIONS: dict[Any, Any] = {
    keras.metrics.binary_accuracy: keras.metrics.BinaryAccuracy,
    keras.metrics.kl_divergence: keras.metrics.KLDivergence,
}

_CAUSES = (
    "Usual causes: images in another range than the model's (model.preprocessor, rescale=True), a "
    "learning rate that is too high or without warm-up, labels that are not class numbers from 0 "
    "to num_classes - 1, or float16 without a LossScaleOptimizer."
)


def adapt_losses(
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
    if config.regression:  # numbers are no logits, and any loss or metric may be meant
        loss = keras.losses.MeanSquaredError() if is_auto else loss
        return loss, metrics, weighted_metrics
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
    """Returns a cross-entropy of Keras with this `from_logits`, and other losses as they are.

    Raises:
        ConfigError: Keras would choose a loss of probabilities, and the model returns logits.
    """
    if _is_by_labels(loss):
        if from_logits:
            raise ConfigError(
                f"loss={loss!r} is for probabilities, and the model returns logits. Give "
                'loss="auto" for labels that are class numbers, or '
                "keras.losses.CategoricalCrossentropy(from_logits=True) for one-hot labels."
            )
        return loss
    standard = _standard(loss)
    if type(standard) not in _CLASSES.values():
        return loss
    settings = standard.get_config()  # Keras 3.16 has no attribute `from_logits`
    if settings.get("from_logits", False) == from_logits:
        return standard
    if "from_logits" not in settings:
        warn(
            f"loss={_name(loss)} is for probabilities, and the model returns logits. Build or load "
            'it with classifier_activation="softmax".'
        )
        return standard
    takes, returns = ("logits", "probabilities") if not from_logits else ("probabilities", "logits")
    warn(
        f"loss={_name(loss)} is for {takes}; the model returns {returns}, so it is used with "
        f"from_logits={from_logits}.",
    )
    return type(standard).from_config({**settings, "from_logits": from_logits})


def _standard(loss: Any) -> Any:
    """Returns the cross-entropy of Keras that a name, function or class stands for, or the loss."""
    standard = keras.losses.get(loss) if isinstance(loss, (str, dict)) else loss
    if isinstance(standard, Hashable):
        standard = _CLASSES.get(standard, standard)
    return standard() if isinstance(standard, type) and standard in _CLASSES.values() else standard


def _fit_metric(metric: Any, loss: Any, from_logits: bool, by_class: bool) -> Any:
    """Returns a metric for the model's outputs; metrics of another kind as they are."""
    if metric in ("accuracy", "acc"):
        if not by_class:
            return metric
        return keras.metrics.BinaryAccuracy(metric, threshold=0.0 if from_logits else 0.5)
    kind = _METRICS.get(type(loss)) if metric in ("crossentropy", "ce") else None
    if kind is None:
        by_name = isinstance(metric, str) and "entropy" in metric
        function = keras.losses.get(metric) if by_name else metric
        kind = _METRICS.get(_CLASSES.get(function)) if callable(function) else None
    if kind is None:
        by_class = by_class or isinstance(loss, _BY_CLASS)
        return _read_probabilities(metric, by_class) if from_logits else metric
    return kind(from_logits=from_logits, name=metric if isinstance(metric, str) else _name(metric))


def _read_probabilities(metric: Any, by_class: bool) -> Any:
    """Returns a metric of Keras behind the head's activation, if it reads probabilities.

    A threshold of 0, or beyond 1, is meant for logits, as Keras says of `Precision`. A class of the
    user is never changed; it causes a warning if Keras's own code reads its predictions.
    """
    standard = _find_metric(metric)
    if standard is None:
        return metric
    name = metric if isinstance(metric, str) else standard.name
    classes = itertools.takewhile(lambda c: c not in _OF_PROBABILITIES, type(standard).__mro__)
    if own := list(classes):
        if not any("update_state" in vars(each) for each in own):
            warn(
                f"The metric {name!r} gets the logits that the model returns; Keras's "
                f"code, which {own[0].__name__} inherits, takes them for probabilities. Load the "
                'model with classifier_activation="softmax" or "sigmoid", or apply it in '
                "update_state."
            )
        return metric
    activation = _OF_PROBABILITIES[type(standard)] or ("sigmoid" if by_class else "softmax")
    # Keras numbers the names of its objects; that of a string is the string.
    return MetricOfLogits(standard, activation, name=name)


def _find_metric(metric: Any) -> Any:
    """Returns the metric that a name, function or class stands for if it reads probabilities."""
    standard: Any = metric
    if isinstance(metric, (str, dict, type)):
        with contextlib.suppress(ValueError):  # Keras refuses an unknown name in its own words
            standard = keras.metrics.get(metric)
    if isinstance(standard, Hashable) and standard in _FUNCTIONS:
        standard = _FUNCTIONS[standard](name=_name(standard))
    known: Any = tuple(_OF_PROBABILITIES)
    return standard if isinstance(standard, known) and not _is_for_logits(standard) else None


def _is_for_logits(metric: Any) -> bool:
    """Whether a metric says by its arguments that it reads logits."""
    settings = metric.get_config()
    given = settings.get("thresholds", settings.get("threshold"))
    thresholds = np.ravel([0.5] if given is None else given).astype(float)
    return bool(settings.get("from_logits")) or not ((thresholds > 0) & (thresholds < 1)).any()


@keras.saving.register_keras_serializable("keras_vit")
class MetricOfLogits(keras.metrics.Metric):
    """A metric that reads probabilities, for a model that returns logits.

    Args:
        metric: the metric; its state and its name are those of this metric.
        activation: `"softmax"` or `"sigmoid"`, which turns logits into probabilities.
        **options: arguments of `keras.metrics.Metric`.
    """

    def __init__(self, metric: Any, activation: str, **options: Any) -> None:
        super().__init__(**{"name": metric.name, "dtype": metric.dtype, **options})
        self.metric = metric
        self.activation = activation

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Adds a batch of labels, and of logits `(..., classes)`."""
        probabilities = getattr(keras.ops, self.activation)(y_pred)
        return self.metric.update_state(y_true, probabilities, sample_weight)

    def result(self) -> Any:
        """Returns the result of the metric."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Resets the metric."""
        self.metric.reset_state()

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        metric = keras.metrics.serialize(self.metric)
        return {**super().get_config(), "metric": metric, "activation": self.activation}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MetricOfLogits":
        """Returns the metric with these arguments."""
        return cls(**{**config, "metric": keras.metrics.deserialize(config["metric"])})


class OuterLoss:
    """Warns once of a model around a `VisionTransformer` that takes its logits for probabilities.

    The loss of that model does it, or a metric. `keras.Sequential([keras.layers.Rescaling(...),
    vit])` has a `compile` of its own. The warning is true where they meet these logits: in a step
    of the model that trains. Keras tells a layer nothing about the models around it, and its
    symbolic call of a functional model, which comes before any loss is known, runs no method of
    ours. So the functions that called are searched for that step. A model that adds layers behind
    the logits is left alone.
    """

    def __init__(self) -> None:
        self._has_warned = False

    def check(self, model: Any) -> None:
        """Looks for a step of training or evaluation of another model among the callers.

        Args:
            model: the model that was called.
        """
        if self._has_warned or not model.config.returns_logits or _is_compiled():
            return
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_name not in ("train_step", "test_step"):
            frame = frame.f_back
        outer = None if frame is None else frame.f_locals.get("self")
        if outer is model or not isinstance(outer, keras.Model) or not _ends_in(outer, model):
            return
        losses = [loss for loss in _flat(outer.loss) if _is_of_classes(loss)]
        wrong = [f"loss={_name(loss)}" for loss in losses if _takes_probabilities(loss)]
        if len(getattr(outer, "output_names", ())) > 1:  # which loss is of which, Keras alone tells
            wrong = wrong if len(wrong) == len(losses) else []
        # Keras holds the metrics of `compile` in one object. TensorFlow may compile its training
        # step before they exist: the step of evaluation then sees them.
        metrics = [own for each in outer.metrics for own in getattr(each, "metrics", [each])]
        metrics = metrics if len(getattr(outer, "output_names", ())) < 2 else []
        wrong += [
            f"the metric {metric.name!r}"
            for metric in metrics
            if type(metric) in _OF_PROBABILITIES and not _is_for_logits(metric)
        ]
        if wrong:
            self._has_warned = True
            warn(
                f"{model.name!r} returns logits, and {outer.name!r} around it takes them for "
                f"probabilities in {', '.join(wrong)}: a loss becomes NaN, or the value is wrong. "
                'Build or load the model with classifier_activation="softmax" ("sigmoid" for one '
                "class or many labels), or compile with from_logits=True, as in "
                "keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
            )


def _is_compiled() -> bool:
    """Whether `torch.compile` reads the code, which knows no frames."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    return torch.compiler.is_compiling()


def _ends_in(outer: Any, model: Any) -> bool:
    """Whether an output of a model is that of a layer, as far as its layers tell."""
    while outer is not model and isinstance(outer, keras.Model):
        if model.name in getattr(outer, "output_names", ()):
            return True
        behind = itertools.dropwhile(_keeps_logits, reversed(_list_parts(outer)))
        outer = next(behind, None)
    return outer is model


def _list_parts(model: Any) -> list[Any]:
    """Returns the layers of a model, and its functions such as keras.ops.softmax.

    A class of the user has no list of functions, and its layers stand in the order in which they
    were made.
    """
    return getattr(model, "operations", None) or model.layers


def _keeps_logits(part: Any) -> bool:
    """Whether logits stay logits behind a part, as behind `Dropout` and `Activation("linear")`."""
    if isinstance(part, keras.Model):
        return all(map(_keeps_logits, _list_parts(part)))
    if not isinstance(part, keras.layers.Layer) or not part.__module__.startswith("keras."):
        return False
    changes = part.weights or isinstance(part, (keras.layers.Softmax, keras.layers.Lambda))
    return not changes and getattr(part, "activation", None) in (None, keras.activations.linear)


def _is_by_labels(loss: Any) -> bool:
    """Whether Keras chooses a cross-entropy of probabilities, as soon as it sees the labels."""
    return str(loss).lower() in ("crossentropy", "ce")


def _is_of_classes(loss: Any) -> bool:
    return _is_by_labels(loss) or type(_standard(loss)) in _CLASSES.values()


def _takes_probabilities(loss: Any) -> bool:
    if _is_by_labels(loss):
        return True
    return _is_of_classes(loss) and not _standard(loss).get_config().get("from_logits")


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


_BY_CLASS = (
    keras.losses.BinaryCrossentropy,
    keras.losses.BinaryFocalCrossentropy,
    ManyLabelsCrossentropy,
)
"""Losses that give every class a probability of its own, the sigmoid of its logit."""


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

    They are the area below the curve of precision and recall, and F1 at a probability of 0.5;
    `compile` adapts them to logits.
    """
    labels = config.num_classes
    area = keras.metrics.AUC(curve="PR", multi_label=True, num_labels=labels, name="pr_auc")
    return [area, keras.metrics.F1Score(average="macro", threshold=0.5, name="f1")]


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


def compute_probabilities(logits: np.ndarray, by_class: bool = False) -> np.ndarray:
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


def _flat(value: Any) -> list[Any]:
    """Returns the values in a list or dict of `compile`, or the only one."""
    if isinstance(value, dict) and "class_name" not in value:
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [each for one in value for each in _flat(one)]
    return [] if value is None else [value]


def _name(loss: Any) -> str:
    return repr(loss) if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
