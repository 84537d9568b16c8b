"""Opens and describes a checkpoint from its headers, without a model or a backend.

The steps: read the JSON, find the encoder among the arrays and its format, determine the
configuration, plan the translation, and compare the plan with every array.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checkpoints.containers import Reader
from keras_vit.checkpoints.facts import flatten_arguments, resolve, unpack_reading
from keras_vit.checkpoints.families import KERAS_VIT
from keras_vit.checkpoints.families.family import Format
from keras_vit.checkpoints.fitting import fit
from keras_vit.checkpoints.match import find_match
from keras_vit.checkpoints.moves import Move, Shape
from keras_vit.checkpoints.opening import OpenSource, open_source
from keras_vit.checkpoints.prefix import find_encoder
from keras_vit.checkpoints.stated import read_json
from keras_vit.checkpoints.unread_keys import warn_of_unread_keys
from keras_vit.config.variants import find_variant
from keras_vit.config.weights.lexicon import num_parameters
from keras_vit.errors import CheckpointError
from keras_vit.models.building import Reading
from keras_vit.presets.preset_config import ModelFacts, PresetConfig
from keras_vit.presets.source import Source
from keras_vit.support.text import log


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointInfo(ModelFacts):
    """The description of a checkpoint, returned by `keras_vit.info`.

    If the image size is undetermined, the `position_grid` of the configuration has one row. The
    protocol is that of the JSON files of the checkpoint, or the default of the library.

    Args:
        path: path of the file of weights; for a preset, the name of its source.
        family: name of the checkpoint format, such as `"google"`.
        prefix: prefix of the names of all arrays.
        undetermined: fields that the file does not determine; `from_preset` requires them.
        shapes, dtypes: shape and dtype of every array in the file, by name; empty for a preset,
            whose weights are not opened.
        ignored: names of arrays that are not weights of the model, and the reason for each.
    """

    path: Path
    family: str
    prefix: str = ""
    undetermined: tuple[str, ...] = ()
    shapes: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    dtypes: Mapping[str, np.dtype] = dataclasses.field(default_factory=dict)
    ignored: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def variant(self) -> str | None:
        """Name of the variant with these sizes, or None."""
        return find_variant(self.config)

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the model."""
        return num_parameters(self.config)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An open checkpoint whose format is known and whose arrays match the plan, but are not read.

    Args:
        reader: the open arrays, under the names of the plan.
        format: format of the file.
        info: description of the file.
        moves: the plan that translates its arrays into weights.
    """

    reader: Reader
    format: Format
    info: CheckpointInfo
    moves: list[Move]


def info(
    source: str | os.PathLike[str] | Source,
    *,
    read: Reading | None = None,
    **fields: Any,
) -> CheckpointInfo:
    """Describes a checkpoint or preset: family, configuration and arrays, without loading it.

    It needs no backend and does not read weights. For a row of the catalog or a keras_vit preset,
    the stored configuration is sufficient; for any other checkpoint, names and shapes of all
    arrays are read.

    Args:
        source: a source as for `VisionTransformer.from_preset`.
        read: as for `from_preset`.
        **fields: further arguments of `from_preset`, such as fields that a checkpoint does not
            determine.

    Raises:
        PresetError: the preset does not exist, or is damaged.
        CheckpointError: the file cannot be read, contains no Vision Transformer, or its arrays
            do not match the inferred configuration.
        ConfigError: an argument or a key of `read` is unknown.
    """
    how = unpack_reading(read, fields)
    source = Source.parse(source, allow_pickle_weights=how["allow_pickle_weights"])
    if (preset := source.preset()) is not None:
        family = KERAS_VIT.name if source.row is None else source.row.format_name
        return _info(Path(source.name), family, preset)
    with open_source(source, headers=True) as files:
        return open_checkpoint(files, {**source.defaults, **fields, **how}).info


def open_checkpoint(files: OpenSource, arguments: Mapping[str, Any]) -> Checkpoint:
    """Finds the format, infers the configuration and compares every array with it.

    If the source is a single file, the JSON next to it may belong to another model, with another
    family or other sizes. It is then ignored, and the log says why. JSON with an invalid value, or
    with a feature that keras_vit lacks, is refused as in a folder.

    Args:
        files: the open source.
        arguments: the caller's fields of `ViTConfig`, and the keys of `read`.

    Raises:
        CheckpointError: no format fits, a field is missing or invalid, or arrays are missing,
            unexpected or have a wrong shape; the message names them.
        SourceError: the arrays belong to a preset whose config.json is missing.
    """
    try:
        return _read(files, arguments)
    except CheckpointError as error:
        is_invalid = error.__cause__ is not None  # raised by an invalid value
        if files.is_folder or not files.json or files.preset is not None or is_invalid:
            raise
        reason = str(error).partition("\n")[0]
        log.warning("The JSON next to this file belongs to another model: ignored. %s", reason)
        return _read(dataclasses.replace(files, json={}), arguments)


def _read(files: OpenSource, arguments: Mapping[str, Any]) -> Checkpoint:
    """Reads a checkpoint: its JSON, its arrays and their format, the facts, and the plan."""
    caller = flatten_arguments(arguments)
    json, stated, formats = read_json(files, caller)
    choices = {name: caller[name] for name in _OF_ARRAYS if caller.get(name) is not None}
    encoder = find_encoder(files.reader, formats, **choices)
    match = find_match(encoder, stated, formats)
    preset, undetermined = resolve(match, files.preset, json, caller)
    moves, ignored = fit(match, preset.config, caller.get("num_classes") == 0)
    if caller.get("num_classes") == 0 and arguments.get("timm") is not None:
        preset = dataclasses.replace(preset, config=preset.config.replace(num_classes=0))
    warn_of_unread_keys(match.stated, match.format)
    described = _info(
        files.reader.path,
        match.format.name,
        preset,
        prefix=encoder.prefix,
        undetermined=undetermined,
        shapes=dict(files.reader.shapes),
        dtypes=dict(files.reader.dtypes),
        ignored=ignored,
    )
    return Checkpoint(match.reader, match.format, described, moves)


_OF_ARRAYS = ("prefix", "ignore", "weights")
"""Keys of the argument `read` that select the arrays of a file."""


def _info(path: Path, family: str, stated: PresetConfig, **arrays: Any) -> CheckpointInfo:
    """Returns what `info` reports: the facts of `config.json` and those of the arrays."""
    facts = {own.name: getattr(stated, own.name) for own in dataclasses.fields(ModelFacts)}
    return CheckpointInfo(path=path, family=family, **facts, **arrays)
