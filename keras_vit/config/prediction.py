"""What the outputs of a model say about an image."""

import dataclasses
from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import CLASSES, choice
from keras_vit.errors import ConfigError, shown

Task: TypeAlias = Literal["single_label", "multi_label", "regression", "segmentation", "depth"]
"""What is predicted for an image: one class, any number of classes, or values; or for each of its
pixels: a class, or a depth."""
DENSE_TASKS = ("segmentation", "depth")
"""The tasks of a `DenseHead`."""
PROBABILITIES = ("softmax", "sigmoid")
"""Functions that turn logits into probabilities, for `classifier_activation`."""


@dataclasses.dataclass(frozen=True)
class Prediction(Fields):
    """What the outputs of a model say about an image; the network is the same for all of them.

    Args:
        num_classes: width of the head; 0 for a model that returns features.
        task: `"single_label"`, one class per image, of two classes with `num_classes=1`;
            `"multi_label"`, any number of classes, each with the sigmoid of its logit as
            probability; `"regression"`, values such as an age; `"segmentation"`, a class per
            pixel, or `"depth"`, of a model with a `DenseHead`, which states it.
        classifier_activation: `"softmax"` or `"sigmoid"` for a model that returns probabilities;
            None for logits.

    Raises:
        ConfigError: a field is invalid, or the activation is not that of the task.
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
                f"classifier_activation={self.classifier_activation!r} is not that of "
                f"task={self.task!r} with num_classes={shown(self.num_classes)}: give {fitting}."
            )

    @property
    def activation(self) -> str | None:
        """The function whose outputs are the probabilities of the task; None for values."""
        if self.predicts_values:
            return None
        return "sigmoid" if self.task == "multi_label" or self.is_binary else "softmax"

    @property
    def returns_logits(self) -> bool:
        """Whether the model returns logits, of which softmax or sigmoid make probabilities."""
        has_classes = self.num_classes > 0 and not self.predicts_values
        return has_classes and not self.classifier_activation

    @property
    def predicts_values(self) -> bool:
        """Whether the outputs are values, and not classes."""
        return self.task in ("regression", "depth")

    @property
    def is_binary(self) -> bool:
        """Whether one logit decides between two classes; its sigmoid is that of the second."""
        return self.num_classes == 1 and self.task == "single_label"

    @property
    def num_answers(self) -> int:
        """Number of classes that labels and answers name: `num_classes`, or 2 for one logit."""
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
                f"{what} needs classes; this model has task={self.task!r}: "
                "model.predict(model.preprocessor(images)) gives its values, `keras-vit embed "
                "--stage logits` writes them, an export has outputs='logits'. If its outputs are "
                "logits of classes, load it with task='single_label'."
            )
