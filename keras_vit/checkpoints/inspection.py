"""Describes a checkpoint by its headers alone, without a model or a backend.

Four steps: recognise the dialect, read the JSON beside the weights, infer the configuration,
and plan the translation, which compares every array with the configuration.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checkpoints import facts
from keras_vit.checkpoints.containers import Reader
from keras_vit.checkpoints.dialects import DIALECTS, Dialect, dialects_named
from keras_vit.checkpoints.dialects.keras_vit import keras_vit
from keras_vit.checkpoints.dialects.timm.by_name import merge_config
from keras_vit.checkpoints.opening import OpenSource, open_source
from keras_vit.checkpoints.recognition import (
    find_tower_json,
    read_statement,
    recognise_dialect,
)
from keras_vit.checkpoints.surroundings import choices, find_encoder, left_over, without_head
from keras_vit.checkpoints.translate import Move, Shape, compare, plan
from keras_vit.checkpoints.unread_keys import warn_of_unread_keys
from keras_vit.config.fields import nest
from keras_vit.config.variants import find_variant, variant_named
from keras_vit.config.weights.lexicon import num_parameters
from keras_vit.errors import CheckpointError, SourceError, shown
from keras_vit.models.building import Reading
from keras_vit.presets.preset_config import ModelFacts, PresetConfig
from keras_vit.presets.source import Source
from keras_vit.support.text import log


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointInfo(ModelFacts):
    """The description of a checkpoint.

    If the image size is undetermined, the `position_grid` of the configuration has one row. The
    protocol is that of the JSON files beside the weights, or the default of the dialect.

    Args:
        path: path of the file of weights; of a preset, the name of its source.
        family: name of the format of its arrays, such as `"google"`.
        prefix: prefix of the names of all arrays.
        undetermined: fields that the file leaves open; `from_preset` requires them.
        shapes, dtypes: shape and dtype of every array in the file, by name; empty for a preset,
            whose weights are not opened.
        ignored: names of arrays that are no weights of the model, and the reason for each.
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
    """An open file, recognised and compared with its plan, whose arrays are not read yet.

    Args:
        reader: the open arrays.
        dialect: dialect of their names.
        info: description of the file.
        moves: the plan that turns its arrays into weights.
    """

    reader: Reader
    dialect: Dialect
    info: CheckpointInfo
    moves: list[Move]


def info(
    source: str | os.PathLike[str] | Source,
    *,
    read: Reading | None = None,
    **fields: Any,
) -> CheckpointInfo:
    """Describes the checkpoint of a source, without a backend and without reading arrays.

    A row of the catalog and the `config.json` of a keras_vit preset describe themselves, so that
    nothing else is opened. Of any other checkpoint, names and shapes of all arrays are read.

    Args:
        source: a source as for `VisionTransformer.from_preset`.
        read: as for `from_preset`.
        **fields: other arguments of `from_preset`, such as fields that a checkpoint leaves open.

    Raises:
        PresetError: the preset does not exist, or is damaged.
        CheckpointError: the file cannot be read, holds no Vision Transformer, or its arrays
            do not fit the inferred configuration.
        ConfigError: an argument or a key of `read` is unknown.
    """
    how = facts.unpack_reading(read, fields)
    source = Source.parse(source, allow_pickle_weights=how["allow_pickle_weights"])
    if (preset := source.preset()) is not None:
        family = keras_vit.name if source.row is None else source.row.dialect
        return _info(Path(source.name), family, preset)
    with open_source(source, headers=True) as files:
        return open_checkpoint(files, {**source.defaults, **fields, **how}).info


def open_checkpoint(files: OpenSource, arguments: Mapping[str, Any]) -> Checkpoint:
    """Recognises the dialect, infers the configuration and compares every array with it.

    JSON beside a file that is named alone may be that of another model: of a family that the arrays
    are not, or of other sizes. It is then not read, and a line of log says why. A value that is
    invalid, or names a part that keras_vit lacks, is refused as in a folder.

    Args:
        files: the open source.
        arguments: the caller's fields of `ViTConfig`, and `variant` and `family`.

    Raises:
        CheckpointError: no dialect fits, a fact is missing or invalid, or arrays are missing,
            misshapen or unexpected; the message names them.
        SourceError: the arrays belong to a preset whose config.json is missing.
    """
    try:
        return _open(files, arguments)
    except CheckpointError as error:
        is_invalid = error.__cause__ is not None  # a value's own error
        if files.is_folder or not files.json or files.preset is not None or is_invalid:
            raise
        reason = str(error).partition("\n")[0]
        log.warning("The JSON beside this file is not of this model, and is not read. %s", reason)
        return _open(dataclasses.replace(files, json={}), arguments)


def _open(files: OpenSource, arguments: Mapping[str, Any]) -> Checkpoint:
    file, preset, fields = files.reader, files.preset, facts.flatten_arguments(arguments)
    if preset is not None:
        fields.setdefault("family", keras_vit.name)
    files = files if fields.get("timm") is None else _with_timm(files, fields)
    name = fields.get("family")
    dialects = dialects_named(name) if name else tuple(DIALECTS.values())
    encoder = find_encoder(file, dialects, **choices(fields))
    reader = encoder.reader
    files = dataclasses.replace(files, reader=reader, json=find_tower_json(files.json, dialects))
    recognition = recognise_dialect(files, fields.get("family"))
    dialect = recognition.dialect
    if dialect.fold is not None:
        reader = dialect.fold.read(reader, files.json)
        files = dataclasses.replace(files, reader=reader)
        recognition = recognise_dialect(files, dialect.name)
    states_block = any(path.startswith("block.") for path in fields)
    if dialect is keras_vit and preset is None and not states_block:
        raise SourceError(
            f"{reader.path}: these are the weights of a preset, without the config.json that "
            "states its architecture and arithmetic. Copy the whole preset and name its folder; or "
            "give block=, the arithmetic of the training."
        )
    fields.pop("patch_size", None)  # the model's; the file's is inferred from its arrays
    if fields.get("variant"):
        fields = facts.flatten_arguments(variant_named(fields["variant"]).fields) | fields
    architecture = facts.choose_architecture(fields)
    statement = read_statement(files, dialect, recognition.fields)
    channels = preset.config.channels if preset else recognition.fields.get("channels")
    if channels and architecture.get("channels", channels) != channels:
        raise CheckpointError(
            f"{reader.path}: channels={shown(architecture['channels'])}, but its patches have "
            f"{channels}. Load it without channels=, and repeat its kernel over the new channels: "
            'six lines in docs/preprocessing.md, "Images of other channels".'
        )
    undetermined: tuple[str, ...] = ()
    if preset is not None:
        stated = dataclasses.replace(preset, config=preset.config.replace(**nest(architecture)))
    else:
        stated, undetermined = facts.resolve(files, recognition, statement, fields)
    config = stated.config
    moves = plan(config, dialect, recognition.prefix, reader.shapes)
    beside = left_over(reader.shapes, recognition, moves, config.hidden_size)
    ignored = {**recognition.ignored, **dialect.derived(config), **beside}
    if fields.get("num_classes") == 0:
        moves, heads = without_head(moves, reader.shapes, recognition.prefix)
        ignored |= heads
        if arguments.get("timm") is not None:
            stated = dataclasses.replace(stated, config=config.replace(num_classes=0))
    name = find_variant(config)
    model = f"{name or 'the model'} as {dialect.name} has it"
    compare(reader, moves, ignored, model)
    info = _info(
        reader.path,
        dialect.name,
        stated,
        prefix=encoder.prefix + recognition.prefix,
        undetermined=undetermined,
        shapes=dict(file.shapes),
        dtypes=dict(file.dtypes),
        ignored={
            **{encoder.names[name]: why for name, why in ignored.items() if name in reader.shapes},
            **dict.fromkeys(encoder.outside, "outside of the model"),
            **dict.fromkeys(encoder.ignored, "ignored by the caller"),
        },
    )
    encoder.announce(beside)
    warn_of_unread_keys(files.json, dialect)
    return Checkpoint(reader, dialect, info, moves)


def _with_timm(files: OpenSource, fields: dict[str, Any]) -> OpenSource:
    """Returns the files with the JSON that the caller's `timm` stands for."""
    timm, family = fields.pop("timm"), fields.setdefault("family", "timm")
    try:
        if not str(family).startswith("timm"):
            raise ValueError(f"is for files of timm, and these are to be read as {family!r}")
        config = merge_config(timm, files.json.get("config.json", {}))
    except ValueError as error:
        raise CheckpointError(f"{files.reader.path}: read={{'timm': ...}} {error}") from error
    if not isinstance(timm, str) and timm.get("num_classes") == 0:
        fields.setdefault("num_classes", 0)
    return dataclasses.replace(files, json={"config.json": config})


def _info(path: Path, dialect: str, stated: PresetConfig, **arrays: Any) -> CheckpointInfo:
    """Returns what `info` reports: the facts of `config.json` and those of the arrays."""
    facts = {own.name: getattr(stated, own.name) for own in dataclasses.fields(ModelFacts)}
    return CheckpointInfo(path=path, family=dialect, **facts, **arrays)
