"""The meaning of a model's outputs: task, classes, logits or probabilities."""

import dataclasses
from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import CLASSES, choice
from keras_vit.errors import ConfigError, shown

Task: TypeAlias = Literal["single_label", "multi_label", "regression", "segmentation", "depth"]
"""What is predicted for an image: one class, several classes, or values; or, for each of its
pixels, a class or a depth."""
DENSE_TASKS = ("segmentation", "depth")
"""The tasks of a `DenseHead`."""
PROBABILITIES = ("softmax", "sigmoid")
"""Functions that turn logits into probabilities, for `classifier_activation`."""


@dataclasses.dataclass(frozen=True)
class Prediction(Fields):
    """The meaning of a model's outputs, which does not change the network.

    Args:
        num_classes: width of the head; 0 for a model that returns features.
        task: `"single_label"`: one class per image (with `num_classes=1`, one of two classes);
            `"multi_label"`: any number of classes per image, whose probabilities are sigmoids of
            their logits; `"regression"`: values such as an age; `"segmentation"` (a class per
            pixel) or `"depth"` for a model with a `DenseHead`, which decides between the two.
        classifier_activation: `"softmax"` or `"sigmoid"` for a model that returns probabilities;
            None for logits.

    Raises:
        ConfigError: a field is invalid, or the activation does not fit the task.
    """

    _prefix = ""

    num_classes: int = field(1000, CLASSES)
    task: Task = field("single_label", choice(*get_args(Task)))  # noqa: RUF009
    classifier_activation: str | None = field(None, choice(*PROBABILITIES, None))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes == 0:  # features have no labels
            self._set("task", "single_label")
            self._set("classifier_activation", None)

    def _faults(self) -> Iterator[str]:
        if self.num_classes and self.classifier_activation not in (None, self.activation):
            fitting = f"{self.activation!r} or None" if self.activation else "None"
            if self.task == "single_label" and not self.is_binary:
                fitting += ", or task='multi_label'"
            yield (
                f"classifier_activation={self.classifier_activation!r} does not fit "
                f"task={self.task!r} with num_classes={shown(self.num_classes)}: give {fitting}."
            )

    @property
    def activation(self) -> str | None:
        """The function that turns logits into probabilities; None for regression and depth."""
        if self.predicts_values:
            return None
        return "sigmoid" if self.task == "multi_label" or self.is_binary else "softmax"

    @property
    def returns_logits(self) -> bool:
        """Whether the model returns logits of classes rather than probabilities."""
        has_classes = self.num_classes > 0 and not self.predicts_values
        return has_classes and not self.classifier_activation

    @property
    def predicts_values(self) -> bool:
        """Whether the outputs are values (regression, depth) rather than classes."""
        return self.task in ("regression", "depth")

    @property
    def is_binary(self) -> bool:
        """Whether a single output decides between two classes (binary classification)."""
        return self.num_classes == 1 and self.task == "single_label"

    @property
    def num_answers(self) -> int:
        """Number of classes of labels and predictions: `num_classes`, or 2 for a single logit."""
        return 2 if self.is_binary else self.num_classes

    def demand_classes(self, what: str) -> None:
        """Refuses models that predict values.

        Args:
            what: subject of the message, such as `"classify"`.

        Raises:
            ConfigError: the task is regression or depth.
        """
        if self.predicts_values:
            raise ConfigError(
                f"{what} needs a classifier; this model has task={self.task!r}. For its values use "
                "model.predict(model.preprocessor(images)), `keras-vit embed --stage logits` or an "
                "export with outputs='logits'. If they are logits of classes, load the model with "
                "task='single_label'."
            )
