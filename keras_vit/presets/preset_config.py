"""Reads and writes the file `config.json` of a preset folder."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.config import Prediction, Task, ViTConfig
from keras_vit.errors import ConfigError, PresetError, nearest, shown
from keras_vit.images.class_names import check_thresholds, shorten
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.images.protocols import compact as compact_protocol
from keras_vit.support import __version__

FORMAT = "keras_vit"
FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
MODEL_CARD_FILE = "README.md"
PRESET_FILES = (CONFIG_FILE, WEIGHTS_FILE, MODEL_CARD_FILE)
"""The files of a preset folder."""


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """The facts about a model besides its weights.

    Args:
        config: configuration of the model.
        protocol: preparation of images, see `keras_vit.Preprocessor`.
        class_names: one name per class, the name of a shipped list, or None.
        provenance: origin of the weights, as plain JSON types.
        thresholds: decision thresholds of a multi-label model, see `VisionTransformer.thresholds`;
            else None.
        task, classifier_activation: meaning of the outputs, see `keras_vit.config.Prediction`.
        rescale: whether the model takes pixels, see `VisionTransformer`.
    """

    config: ViTConfig
    protocol: ProtocolSpec = "paper"
    class_names: str | tuple[str, ...] | None = None
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    thresholds: tuple[float, ...] | None = None
    task: Task = "single_label"
    classifier_activation: str | None = None
    rescale: bool = False

    @property
    def prediction(self) -> Prediction:
        """The meaning of the model's outputs.

        Raises:
            ConfigError: the activation is not that of the task.
        """
        task = self.config.dense_task or self.task
        return Prediction(self.config.num_classes, task, self.classifier_activation)


@dataclasses.dataclass(frozen=True)
class PresetConfig(ModelFacts):
    """The contents of `config.json`; a model without thresholds has no such field there.

    Args:
        weights_sha256: sha256 of `model.safetensors`, in hexadecimal; None in presets of early
            releases.
    """

    weights_sha256: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object of `config.json`."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "keras_vit_version": __version__,
            "config": self.config.to_dict(),
            "protocol": compact_protocol(self.protocol),
            "task": self.task,
            "classifier_activation": self.classifier_activation,
            "rescale": self.rescale,
            "class_names": shorten(self.class_names, self.prediction.num_answers),
            **({} if self.thresholds is None else {"thresholds": self.thresholds}),
            "provenance": self.provenance,
            "weights_sha256": self.weights_sha256,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], where: str) -> "PresetConfig":
        """Checks the JSON object of `config.json`.

        Args:
            stored: the object.
            where: path or address of the file, for messages.

        Raises:
            PresetError: the format is unknown or newer, or a field is missing, unknown or invalid.
        """
        if stored.get("format") != FORMAT:
            raise PresetError(
                f"{where}: format is {stored.get('format')!r}, expected {FORMAT!r}. "
                "This is not a preset of keras_vit."
            )
        version = stored.get("format_version")
        if version != FORMAT_VERSION:
            release = stored.get("keras_vit_version")
            raise PresetError(
                f"{where}: format_version is {version!r}, this release of keras_vit reads "
                f"{FORMAT_VERSION}. Update keras_vit"
                + (f": release {release} wrote it." if isinstance(release, str) else ".")
            )
        for name, (kinds, words) in _FIELDS.items():
            value = stored.get(name)
            if not isinstance(value, kinds):
                raise PresetError(f"{where}: field {name!r} is {shown(value)}, expected {words}.")
        for name in stored:
            if name not in ("format", "format_version", "keras_vit_version", *_FIELDS):
                raise PresetError(f"{where}: unknown field {name!r}.{nearest(name, _FIELDS)}")
        try:
            preset = cls(
                ViTConfig.from_dict(stored["config"]),
                compact_protocol(stored["protocol"]),
                provenance=stored["provenance"],
                weights_sha256=stored.get("weights_sha256"),
                task=stored["task"],
                classifier_activation=stored.get("classifier_activation"),
                rescale=stored["rescale"],
            )
            prediction = preset.prediction
            return dataclasses.replace(
                preset,
                class_names=shorten(stored.get("class_names"), prediction.num_answers),
                thresholds=check_thresholds(stored.get("thresholds"), prediction.num_classes),
            )
        except ConfigError as error:
            raise PresetError(f"{where}: {error}") from error


_FIELDS: dict[str, tuple[Any, str]] = {
    "config": (dict, "an object"),
    "protocol": ((str, dict), "a name or an object"),
    "task": (str, "a string"),
    "classifier_activation": ((str, type(None)), "a string or null"),
    "rescale": (bool, "true or false"),
    "class_names": ((list, str, type(None)), "a list of names, the name of a list, or null"),
    "provenance": (dict, "an object"),
    "weights_sha256": ((str, type(None)), "a string or null"),
    "thresholds": ((list, type(None)), "a list of numbers, or null"),
}
"""Fields of `config.json` after its format and versions: their types in Python, and as text."""
