"""What a checkpoint file holds, told from its headers alone: no model, no backend.

Four steps: recognise the dialect, read the JSON beside the weights, infer the configuration,
and plan the translation, which compares every array with the configuration.
"""

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checkpoints import inference
from keras_vit.checkpoints.check import check
from keras_vit.checkpoints.containers import Reader
from keras_vit.checkpoints.dialects import DIALECTS, Dialect, Statement, dialects_named
from keras_vit.checkpoints.dialects.base import not_a_protocol
from keras_vit.checkpoints.dialects.keras_vit import keras_vit
from keras_vit.checkpoints.recognition import Recognition, recognise
from keras_vit.checkpoints.source import OpenSource, Source
from keras_vit.checkpoints.translate import Move, plan
from keras_vit.config import Numerics, ViTConfig
from keras_vit.errors import CheckpointError, ConfigError, SourceError, listed, shown
from keras_vit.preparation.protocols import ProtocolSpec, compact, complete
from keras_vit.presets.preset_config import PresetConfig
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
"""Fields that the arrays decide; asked for otherwise, the file is checked against them."""


_OTHERS = (
    (r"relative_position_bias_table", "a Swin Transformer"),
    (r"(^|[./])(text_model|txt|token_embedding|tok_embeddings|embed_tokens)[./]", "a text model"),
    (r"(^|[./])layer\d\.\d+\.(conv|bn)\d|(^|[./])conv1[./](weight|kernel)", "a ResNet"),
    (r"token_mixing|channel_mixing", "an MLP-Mixer"),
)
"""Names by which other models are known."""


@dataclasses.dataclass(frozen=True)
class CheckpointInfo:
    """What a file of weights is.

    Args:
        path: the file.
        dialect: whose names it uses, such as `"google"`.
        prefix: what stands in front of every name.
        config: the model that it holds. Where the image size is undetermined, the
            position embeddings stand in one row.
        variant: name of the variant of those sizes, or None.
        undetermined: fields that the file does not tell and `load` asks for.
        shapes, dtypes: of every array in the file, by name.
        ignored: names that are no weights of the model, with the reason.
        protocol: how images are prepared for it: as the JSON files beside it say, or
            the default of the dialect.
        labels: a name per class, the word of a shipped list, or None.
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
        """Numbers in the weights of the model."""
        return sum(math.prod(s) for name, s in self.shapes.items() if name not in self.ignored)


@dataclasses.dataclass(frozen=True)
class OpenedCheckpoint:
    """An open file, recognised and checked; `load` reads on from here.

    Args:
        reader: the open arrays.
        dialect: of their names.
        info: what the file is.
        moves: the plan by which its arrays become weights.
    """

    reader: Reader
    dialect: Dialect
    info: CheckpointInfo
    moves: list[Move]


def inspect(source: str | os.PathLike[str] | Source, **fields: Any) -> CheckpointInfo:
    """Tells what a checkpoint holds, from names and shapes alone.

    Args:
        source: a file or folder of any dialect, or whatever else `from_preset` takes.
        **fields: what the file does not tell; see `load`.

    Raises:
        CheckpointError: the file cannot be read, is no ViT, or its arrays do not
            make the model that they announce.
    """
    source = Source.of(source)
    with source.open(headers=True) as files:
        return open_checkpoint(files, {**source.told, **fields}).info


def describe(
    source: str | os.PathLike[str] | Source, **fields: Any
) -> PresetConfig | CheckpointInfo:
    """Tells what `from_preset` would load, without a backend; by headers alone where they do.

    Args:
        source: as for `VisionTransformer.from_preset`.
        **fields: what a checkpoint does not tell; see `load`.

    Returns:
        The `PresetConfig` of a keras_vit preset or of a catalog row, which is not fetched for it;
        else what `inspect` tells.

    Raises:
        PresetError: there is no such preset, or it is damaged.
        CheckpointError: the weights are of no Vision Transformer.
    """
    source = Source.of(source)
    return source.preset() or inspect(source, **fields)


def open_checkpoint(files: OpenSource, fields: Mapping[str, Any]) -> OpenedCheckpoint:
    """Recognises the dialect, infers the configuration and checks every array against it.

    Args:
        files: the open source.
        fields: of `ViTConfig`, plus `variant` and `dialect`: what the caller knows.

    Raises:
        CheckpointError: as `recognise_dialect`, `infer_config` and `plan_translation`.
        SourceError: the arrays are those of a preset, and its config.json is not there.
    """
    reader, preset, asked = files.reader, files.preset, dict(fields)
    if preset is not None:
        asked.setdefault("dialect", keras_vit.name)
    recognition = recognise_dialect(files, asked.get("dialect"))
    if recognition.dialect is keras_vit and preset is None and asked.get("numerics") is None:
        raise SourceError(_without_config(files))
    if asked.get("variant"):
        asked = {**variant(asked["variant"]).fields, **asked}
    stated = read_json_fields(files, recognition)
    told = _with_conventions(recognition, stated)
    undetermined: tuple[str, ...] = ()
    if preset is not None:
        config = preset.config.replace(**{k: asked[k] for k in _ARCHITECTURE if k in asked})
    else:
        config, undetermined = infer_config(reader, recognition, told, asked)
    ignored = {**recognition.ignored, **recognition.dialect.derived(config)}
    recognition = dataclasses.replace(recognition, ignored=ignored)
    moves = plan_translation(reader, recognition, config, told, asked)
    info = CheckpointInfo(
        path=reader.path,
        dialect=recognition.dialect.name,
        prefix=recognition.prefix,
        config=config,
        variant=variant_of(config),
        undetermined=undetermined,
        shapes=dict(reader.shapes),
        dtypes=dict(reader.dtypes),
        ignored=recognition.ignored,
        protocol=preset.protocol if preset else _protocol(stated, recognition.dialect, config),
        labels=preset.labels if preset else stated.labels,
    )
    return OpenedCheckpoint(reader, recognition.dialect, info, moves)


def _without_config(files: OpenSource) -> str:
    """Why weights of a preset are not read without what says how to compute with them."""
    path = files.reader.path
    if files.is_folder:
        return (
            f"{path}: these are the weights of a preset, but its config.json is not beside them, "
            "which says how to compute with them. Copy the whole preset."
        )
    return (
        f"{path}: these are the weights of a preset, and config.json says how to compute with "
        "them. Name the folder that holds both; or give numerics=, with which they were trained."
    )


def recognise_dialect(files: OpenSource, asked: str | None = None) -> Recognition:
    """Returns the dialect of a file: the family that its JSON names, or that claims most names.

    Args:
        files: the open source.
        asked: name of the dialect to read the file as.

    Raises:
        CheckpointError: the JSON names a family that keras_vit does not read, or the arrays
            are those of no Vision Transformer.
    """
    reader = files.reader
    dialects = dialects_named(asked) if asked else tuple(DIALECTS.values())
    named = {dialect: dialect.is_named_by(files.json) for dialect in dialects}
    candidates = [dialect for dialect in dialects if named[dialect] is not False]
    if any(named.values()):
        candidates = [dialect for dialect in dialects if named[dialect]]
    elif len(candidates) < len(dialects):
        raise CheckpointError(f"{reader.path}: {_foreign_family(files.json, dialects)}.")
    recognition = recognise(reader.shapes, candidates)
    if recognition is None:
        some = list(itertools.islice(reader.shapes, 2000))
        other = next((kind for pattern, kind in _OTHERS if _any(pattern, some)), None)
        guess = f" It looks like {other}." if other else ""
        raise CheckpointError(
            f"{reader.path}: no Vision Transformer in any of the dialects "
            f"{', '.join(d.name for d in candidates)}. It holds {len(reader.shapes)} arrays: "
            f"{listed(some) if some else 'nothing'}.{guess}"
        )
    return recognition


def _foreign_family(files: Mapping[str, Any], dialects: Iterable[Dialect]) -> str:
    """Names the model that the JSON is of, and the families that are read."""
    for where in [dialect.identity for dialect in dialects]:
        value = where.value(files) if where else None
        if where and value is not None:
            read = [d.identity for d in dialects if d.identity and d.identity.key == where.key]
            expected = " or ".join(dict.fromkeys(identity.expected for identity in read))
            classes = files[where.file].get("architectures")
            model = (
                f"; the model is a {listed(classes, 2)}"
                if isinstance(classes, list) and classes
                else ""
            )
            return f"{where.file} has {where.key}={shown(value)}, expected {expected}{model}"
    raise LookupError("no JSON names a family")


def read_json_fields(files: OpenSource, recognition: Recognition) -> Statement:
    """Returns what the JSON files beside the arrays state.

    Raises:
        CheckpointError: a value cannot be; names file and key.
    """
    try:
        return recognition.dialect.read_json(files.json)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        where = files.reader.path
        raise CheckpointError(f"{where}: a JSON file beside the weights: {error}.") from error


def infer_config(
    reader: Reader, recognition: Recognition, told: Mapping[str, Any], asked: Mapping[str, Any]
) -> tuple[ViTConfig, tuple[str, ...]]:
    """Returns the configuration that a file tells, and the fields that it leaves open.

    Args:
        reader: the open arrays.
        recognition: of their names and shapes.
        told: by the arrays, the dialect and the JSON files.
        asked: by the caller, whose word is the last.

    Raises:
        CheckpointError: a field is missing that cannot be guessed, or the fields describe
            no model.
    """
    known = {**told, **{k: asked[k] for k in _ARCHITECTURE if k in asked}}
    num_positions = known.pop("num_positions", None)
    missing = [name for name in ("hidden_size", "mlp_dim", "num_heads") if name not in known]
    if missing:
        raise CheckpointError(
            f"{reader.path}: the arrays do not tell {', '.join(missing)}; give it by name."
        )
    if known["position"] == "sincos2d" and "position" not in asked and known["class_token"]:
        raise CheckpointError(
            f"{reader.path}: there is a class token and no array of position embeddings. If the "
            "model was trained with fixed ones, say position='sincos2d'; otherwise the file has "
            "lost an array."
        )
    try:
        _compare_promises(recognition, known)
        return inference.with_grid(known, num_positions, asked)
    except ConfigError as error:
        name = recognition.dialect.name
        raise CheckpointError(f"{reader.path}: read as {name}: {error}") from error


def _compare_promises(recognition: Recognition, known: Mapping[str, Any]) -> None:
    """Refuses a number of blocks or stages that stands far above the arrays there.

    A single name such as `block_100000` promises as many blocks; whoever lists their arrays
    to say which are missing needs minutes and gigabytes.
    """
    blocks = inference.numbers(recognition.found, "l")
    promised = known.get("num_layers")
    if blocks and isinstance(promised, int) and promised > 2 * len(blocks) + 8:
        raise ConfigError(
            f"{shown(promised)} blocks are announced, the arrays are of {len(blocks)}, up to "
            f"number {max(blocks)}."
        )
    stages = inference.numbers(recognition.found, "s")
    units = inference.numbers(recognition.found, "u")
    if stages and (max(stages) > 2 * len(stages) + 8 or max(units) > 2 * len(units) + 8):
        raise ConfigError(
            f"The names go up to stage {max(stages)} and unit {max(units)} of the stem, the "
            f"arrays are of {len(stages)} stages and at most {len(units)} units."
        )


def plan_translation(
    reader: Reader,
    recognition: Recognition,
    config: ViTConfig,
    told: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> list[Move]:
    """Returns the plan by which the arrays become weights, after comparing every array with it.

    Raises:
        CheckpointError: names every array that is missing, misshapen or unexpected.
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
    """How images are prepared: as the files state, if that is meant for the model's channels."""
    if stated.protocol is not None:
        protocol = complete(stated.protocol)
        counts = [len(protocol[k]) for k in ("mean", "std") if isinstance(protocol[k], list)]
        if set(counts) <= {config.channels}:
            return compact(protocol)
        counted = f"A mean or std of {counts[0]} channels, where the model has {config.channels},"
        not_a_protocol(counted)
    return compact(dialect.images.default(config))


def _with_conventions(recognition: Recognition, stated: Statement) -> dict[str, Any]:
    """Adds to what the arrays tell what the dialect takes for granted and the files state."""
    dialect, told = recognition.dialect, recognition.fields
    numerics: dict[str, Any] = (dialect.numerics or Numerics()).to_dict()
    numerics |= {**told.get("numerics", {}), **stated.fields.get("numerics", {})}
    return {**told, **dialect.conventions, **stated.fields, "numerics": numerics}


def _any(pattern: str, names: Iterable[str]) -> bool:
    return any(re.search(pattern, name) for name in names)


def _fitting_variant(told: Mapping[str, Any]) -> str | None:
    """The variant that the shapes fit, whatever was asked for."""
    fields = {name: value for name, value in told.items() if name != "num_positions"}
    try:
        return variant_of(ViTConfig.from_dict({**fields, "image_size": None}))
    except ConfigError:
        return None
