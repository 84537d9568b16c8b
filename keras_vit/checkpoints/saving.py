"""Saves a model as a preset folder."""

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.families import KERAS_VIT
from keras_vit.checkpoints.transfer import arrays_to_write
from keras_vit.checkpoints.writing import write as write_checkpoint
from keras_vit.errors import PresetError
from keras_vit.presets.model_card import model_card
from keras_vit.presets.preset_config import (
    CONFIG_FILE,
    MODEL_CARD_FILE,
    PRESET_FILES,
    WEIGHTS_FILE,
    ModelFacts,
    PresetConfig,
)
from keras_vit.support.files import replace_folder, write_json


def save_preset(model: Any, folder: str | os.PathLike[str], card: Mapping[str, Any] | None) -> None:
    """Saves a preset atomically; see `save_to_preset`.

    If the process is killed, there is the old preset, the complete new one, or no folder.
    If several processes share the model's distribution on JAX, the first process writes.

    Raises:
        PresetError: `folder` exists and contains other files than a preset, or `card` has an
            unknown field.
    """
    from keras_vit.distribution.processes import write_once

    folder = Path(folder)
    preset = PresetConfig(
        model.config,
        model.preprocessor.protocol,
        model.class_names,
        dict(model.provenance),
        thresholds=model.thresholds,
        task=model.task,
        classifier_activation=model.prediction.classifier_activation,
        rescale=model.rescale,
    )
    readme = model_card(folder.name, preset, card)
    arrays = arrays_to_write(model)  # in every process

    def write() -> None:
        with replace_folder(folder, PRESET_FILES, PresetError) as new:
            write_checkpoint(ModelFacts(model.config), arrays, [KERAS_VIT], new / WEIGHTS_FILE)
            with (new / WEIGHTS_FILE).open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
            whole = dataclasses.replace(preset, weights_sha256=checksum)
            write_json(new / CONFIG_FILE, whole.to_dict())
            (new / MODEL_CARD_FILE).write_text(readme, encoding="utf-8")

    write_once(write, folder)
