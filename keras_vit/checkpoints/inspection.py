"""The description of a checkpoint, from its headers alone, without a model or a backend.

Four steps: recognise the dialect, read the JSON beside the weights, infer the configuration,
and plan the translation, which compares every array with the configuration.
"""

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checkpoints import inference
from keras_vit.checkpoints.check import check
from keras_vit.checkpoints.containers import Reader, unwrapped
from keras_vit.checkpoints.dialects import Dialect, Statement
from keras_vit.checkpoints.dialects.base import not_a_protocol
from keras_vit.checkpoints.dialects.keras_vit import keras_vit
from keras_vit.checkpoints.opening import OpenSource, open_source
from keras_vit.checkpoints.recognition import Recognition, recognise_dialect, wrapper_of
from keras_vit.checkpoints.translate import Move, plan
from keras_vit.config import Numerics, ViTConfig
from keras_vit.errors import CheckpointError, ConfigError, SourceError, shown
from keras_vit.images.protocols import ProtocolSpec, compact, complete
from keras_vit.sources.preset_config import PresetConfig
from keras_vit.sources.source import Source
from keras_vit.variants import variant, variant_of

_ARCHITECTURE = (
    "patch_size",
    "hidden_size",
    "mlp_dim",
    "num_heads",
    "num_layers",
    "channels",
    "resnet",
    "classifier",
    "position",
)
"""Fields that follow from the arrays; if the caller gives one, the arrays must agree with it."""


_NEEDED = ("patch_size", "hidden_size", "mlp_dim", "num_heads")
"""Sizes without which no model can be built."""

_NUMERICS = tuple(field.name for field in dataclasses.fields(Numerics))


@dataclasses.dataclass(frozen=True)
class CheckpointInfo:
    """The description of a file of weights.

    Args:
        path: path of the file.
        dialect: name of the dialect of its arrays, such as `"google"`.
        prefix: prefix of the names of all arrays.
        config: configuration of the model. If the image size is undetermined, its
            `position_grid` has one row.
        variant: name of the variant with these sizes, or None.
        undetermined: fields that the file leaves open; `load` requires them.
        shapes, dtypes: shape and dtype of every array in the file, by name.
        ignored: names of arrays that are no weights of the model, and the reason for each.
        protocol: preparation of images: the protocol that the JSON files beside the weights
            state, or the default of the dialect.
        labels: one name per class, the name of a shipped list, or None.
    """

    path: Path
    dialect: str
    prefix: str
    config: ViTConfig
    variant: str | None
    undetermined: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]
    ignored: dict[str, str]
    protocol: ProtocolSpec
    labels: str | tuple[str, ...] | None

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the model."""
        return sum(math.prod(s) for name, s in self.shapes.items() if name not in self.ignored)


@dataclasses.dataclass(frozen=True)
class OpenedCheckpoint:
    """An open file, recognised and checked, whose arrays are not read yet.

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


def inspect(
    source: str | os.PathLike[str] | Source, *, allow_pickle_weights: bool = False, **fields: Any
) -> CheckpointInfo:
    """Returns the description of a checkpoint, from names and shapes alone.

    Args:
        source: a file or folder of any dialect, or another source of `from_preset`.
        allow_pickle_weights: as for `load`.
        **fields: arguments of `load` that the file leaves open.

    Raises:
        CheckpointError: the file cannot be read, holds no Vision Transformer, or its arrays
            do not fit the inferred configuration.
    """
    source = Source.of(source, allow_pickle_weights=allow_pickle_weights)
    with open_source(source, headers=True) as files:
        return open_checkpoint(files, {**source.defaults, **fields}).info


def describe(
    source: str | os.PathLike[str] | Source, **fields: Any
) -> PresetConfig | CheckpointInfo:
    """Describes what `from_preset` would load, without a backend and without reading weights.

    Args:
        source: a source as for `VisionTransformer.from_preset`.
        **fields: arguments of `load` that a checkpoint leaves open.

    Returns:
        The `PresetConfig` of a keras_vit preset or of a catalog row, whose weights are not
        downloaded; for other checkpoints the result of `inspect`.

    Raises:
        PresetError: the preset does not exist, or is damaged.
        CheckpointError: the weights do not belong to a Vision Transformer.
    """
    source = Source.of(source)
    return source.preset() or inspect(source, **fields)


def open_checkpoint(files: OpenSource, fields: Mapping[str, Any]) -> OpenedCheckpoint:
    """Recognises the dialect, infers the configuration and checks every array against it.

    Args:
        files: the open source.
        fields: the caller's fields of `ViTConfig`, and `variant` and `dialect`.

    Raises:
        CheckpointError: as `recognise_dialect`, `infer_config` and `plan_translation`.
        SourceError: the arrays belong to a preset whose config.json is missing.
    """
    wrapper = wrapper_of(files.reader.shapes)
    if wrapper:
        files = dataclasses.replace(files, reader=unwrapped(files.reader, wrapper))
    reader, preset, asked = files.reader, files.preset, dict(fields)
    if preset is not None:
        asked.setdefault("dialect", keras_vit.name)
    recognition = recognise_dialect(files, asked.get("dialect"))
    if recognition.dialect is keras_vit and preset is None and asked.get("numerics") is None:
        raise SourceError(_without_config(files))
    asked.pop("patch_size", None)  # the wanted model's; the file's is inferred from arrays
    if asked.get("variant"):
        asked = {**variant(asked["variant"]).fields, **asked}
    stated = read_json_fields(files, recognition)
    told = _with_conventions(recognition, stated)
    undetermined: tuple[str, ...] = ()
    if preset is not None:
        config = preset.config.replace(**{k: asked[k] for k in _ARCHITECTURE if k in asked})
    else:
        _ask(files, recognition, stated, asked)
        config, undetermined = infer_config(reader, recognition, told, asked)
    ignored = {**recognition.ignored, **recognition.dialect.derived(config)}
    recognition = dataclasses.replace(recognition, ignored=ignored)
    moves = plan_translation(reader, recognition, config, told, asked)
    info = CheckpointInfo(
        path=reader.path,
        dialect=recognition.dialect.name,
        prefix=wrapper + recognition.prefix,
        config=config,
        variant=variant_of(config),
        undetermined=undetermined,
        shapes={wrapper + name: shape for name, shape in reader.shapes.items()},
        dtypes={wrapper + name: dtype for name, dtype in reader.dtypes.items()},
        ignored={wrapper + name: why for name, why in recognition.ignored.items()},
        protocol=preset.protocol if preset else _protocol(stated, recognition.dialect, config),
        labels=preset.labels if preset else stated.labels,
    )
    return OpenedCheckpoint(reader, recognition.dialect, info, moves)


def _without_config(files: OpenSource) -> str:
    """Returns the message for weights of a preset without their config.json."""
    path = files.reader.path
    if files.is_folder:
        return (
            f"{path}: these are the weights of a preset, but its config.json is not beside them. "
            "It states the architecture and arithmetic; copy the whole preset."
        )
    return (
        f"{path}: these are the weights of a preset, whose config.json states the arithmetic. Name "
        "the folder that holds both; or give numerics=, the arithmetic of their training."
    )


def read_json_fields(files: OpenSource, recognition: Recognition) -> Statement:
    """Returns the statements of the JSON files beside the arrays.

    Raises:
        CheckpointError: a value is invalid; the message names file and key.
    """
    try:
        return recognition.dialect.read_json(files.json)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        where = files.reader.path
        raise CheckpointError(f"{where}: a JSON file beside the weights: {error}.") from error


def infer_config(
    reader: Reader, recognition: Recognition, told: Mapping[str, Any], asked: Mapping[str, Any]
) -> tuple[ViTConfig, tuple[str, ...]]:
    """Returns the configuration of a file, and the names of the fields that it leaves open.

    Args:
        reader: the open arrays.
        recognition: recognition of their names and shapes.
        told: fields from the arrays, the dialect and the JSON files.
        asked: fields from the caller, which take precedence.

    Raises:
        CheckpointError: a required field is missing, or the fields are invalid together.
    """
    known = {**told, **{k: asked[k] for k in _ARCHITECTURE if k in asked}}
    num_positions = known.pop("num_positions", None)
    missing = [name for name in _NEEDED if name not in known]
    if missing:
        raise CheckpointError(
            f"{reader.path}: {', '.join(missing)} cannot be inferred from the arrays; give it by "
            "name."
        )
    if known["position"] == "sincos2d" and "position" not in asked and known["class_token"]:
        raise CheckpointError(
            f"{reader.path}: there is a class token and no array of position embeddings. If the "
            "model was trained with fixed positions, give position='sincos2d'; otherwise the file "
            "has lost an array."
        )
    try:
        _compare_promises(recognition, known)
        return inference.with_grid(known, num_positions, asked)
    except ConfigError as error:
        name = recognition.dialect.name
        raise CheckpointError(f"{reader.path}: read as {name}: {error}") from error


def _ask(
    files: OpenSource, recognition: Recognition, stated: Statement, asked: Mapping[str, Any]
) -> None:
    """Refuses a file without JSON if its arrays leave the arithmetic open."""
    reader, dialect = files.reader, recognition.dialect
    if dialect.needs_json and not any(table.file in files.json for table in dialect.json):
        raise CheckpointError(
            f"{reader.path}: read as {dialect.name}: {dialect.needs_json} stands in config.json, "
            "and no array tells it. Load the folder that has both."
        )
    untold = dialect.untold({**recognition.fields, "prefix": recognition.prefix})
    known = {
        **recognition.fields.get("numerics", {}),
        **stated.fields,
        **stated.fields.get("numerics", {}),
        **asked,
        **numerics_of(asked),
    }
    if dialect.identity and dialect.is_named_by(files.json):
        known[dialect.identity.key] = dialect.identity.value(files.json)
    if missing := {name: who for name, who in untold.items() if name not in known}:
        name = recognition.dialect.name
        facts = "; ".join(f"{fact}: {who}" for fact, who in missing.items())
        numerics = [f"{m!r}: ..." for m in missing if m in _NUMERICS]
        give = [f"{m}=..." for m in missing if m not in (*_NUMERICS, "architecture")]
        if numerics:
            give.append(f"numerics={{{', '.join(numerics)}}}")
        if "architecture" in missing:
            give.append('a folder whose config.json states {"architecture": ...}')
        raise CheckpointError(
            f"{reader.path}: read as {name}: the arrays do not tell {', '.join(missing)}. Give "
            f"{', '.join(give)} ({facts})."
        )


def numerics_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `Numerics` that a caller gives, in a dict or as a `Numerics`."""
    numerics = asked.get("numerics") or {}
    return numerics.to_dict() if isinstance(numerics, Numerics) else dict(numerics)


def _compare_promises(recognition: Recognition, known: Mapping[str, Any]) -> None:
    """Refuses a number of blocks or stages that is far above the number of arrays.

    A single name such as `block_100000` promises as many blocks; a list of their missing arrays
    would take minutes and gigabytes.
    """
    blocks = inference.numbers(recognition.found, "l")
    promised = known.get("num_layers")
    if blocks and isinstance(promised, int) and promised > 2 * len(blocks) + 8:
        raise ConfigError(
            f"{shown(promised)} blocks are announced, but there are arrays of {len(blocks)}, up to "
            f"number {max(blocks)}."
        )
    stages = inference.numbers(recognition.found, "s")
    units = inference.numbers(recognition.found, "u")
    if stages and (max(stages) > 2 * len(stages) + 8 or max(units) > 2 * len(units) + 8):
        raise ConfigError(
            f"The names go up to stage {max(stages)} and unit {max(units)} of the stem, but there "
            f"are arrays of {len(stages)} stages and at most {len(units)} units."
        )


def plan_translation(
    reader: Reader,
    recognition: Recognition,
    config: ViTConfig,
    told: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> list[Move]:
    """Returns the plan that turns the arrays into weights, after comparing every array with it.

    Raises:
        CheckpointError: arrays are missing, misshapen or unexpected; the message names them.
    """
    moves = plan(config, recognition.dialect, recognition.prefix, reader.shapes)
    name = variant_of(config)
    fits = _fitting_variant(told) if set(_ARCHITECTURE) & set(asked) else None
    check(
        reader.path,
        reader.shapes,
        reader.dtypes,
        moves,
        recognition.ignored,
        f"{name or 'the model'} in the {recognition.dialect.name} dialect",
        fits if fits != name else None,
    )
    return moves


def _protocol(stated: Statement, dialect: Dialect, config: ViTConfig) -> ProtocolSpec:
    """Returns the protocol that the files state if it fits the model's channels, else a default."""
    if stated.protocol is not None:
        protocol = complete(stated.protocol)
        counts = [len(protocol[k]) for k in ("mean", "std") if isinstance(protocol[k], list)]
        if set(counts) <= {config.channels}:
            return compact(protocol)
        counted = f"A mean or std of {counts[0]} channels, where the model has {config.channels},"
        not_a_protocol(counted)
    return compact(dialect.images.default(config))


def _with_conventions(recognition: Recognition, stated: Statement) -> dict[str, Any]:
    """Returns the fields from arrays, dialect and JSON files; the later source takes precedence."""
    dialect, told = recognition.dialect, recognition.fields
    numerics: dict[str, Any] = (dialect.numerics or Numerics()).to_dict()
    more = dict(dialect.deduced(told))
    numerics |= {
        **told.get("numerics", {}),
        **more.pop("numerics", {}),
        **stated.fields.get("numerics", {}),
    }
    fields = {**told, **dialect.conventions, **more, **stated.fields}
    return {**fields, "numerics": numerics}


def _fitting_variant(told: Mapping[str, Any]) -> str | None:
    """Returns the variant that the shapes fit, without regard to the caller's fields."""
    fields = {name: value for name, value in told.items() if name != "num_positions"}
    try:
        return variant_of(ViTConfig.from_dict({**fields, "image_size": None}))
    except ConfigError:
        return None
