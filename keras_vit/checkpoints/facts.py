"""The facts of a checkpoint: arrays, family, JSON and caller, in one order."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints import inference
from keras_vit.checkpoints.dialects import Dialect, Statement
from keras_vit.checkpoints.dialects.base import warn_of_protocol
from keras_vit.checkpoints.opening import OpenSource
from keras_vit.checkpoints.recognition import Recognition
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten, known_fields, nest, part_of
from keras_vit.config.pool import TOKEN_POOLINGS
from keras_vit.errors import CheckpointError, ConfigError, nearest, shown
from keras_vit.images.protocols import ProtocolSpec, compact, complete
from keras_vit.models.building import Building, Reading
from keras_vit.presets.preset_config import PresetConfig

_FREE = (
    *("image_size", "num_classes", "representation_size", "head", "tokens.mask", "stem.kind"),
    *("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate", "block.layer_scale"),
    *("position_grid", "position_resize", "pool.blocks", "pool.norm"),
)
"""Fields, by path, that the caller may choose whatever the arrays are; with all others, the arrays
must agree."""

_NEEDED = ("patch_size", "hidden_size", "mlp_dim", "num_heads")
"""Sizes without which no model can be built."""


def resolve(
    files: OpenSource, recognition: Recognition, statement: Statement, caller: Mapping[str, Any]
) -> tuple[PresetConfig, tuple[str, ...]]:
    """Returns what a checkpoint is, and the names of the fields that it leaves open.

    The first of these that states a field decides it:

    1. the caller;
    2. the JSON beside the weights. For a key that it leaves out, what the arrays show comes
       before what the name of an architecture implies (`JsonTable.shown`);
    3. the fields of every file of the family (`Dialect.conventions`), and its arithmetic;
    4. the arrays: names and shapes (`inference.fields_from`).

    The arrays of the file are compared with the result, so that no contradiction remains. The
    preparation of images that the caller gives is that of the model that is built.

    Args:
        files: the open source.
        recognition: recognition of its names and shapes.
        statement: the contents of its JSON files.
        caller: the caller's fields of `ViTConfig`, by path.

    Raises:
        CheckpointError: a fact is missing, or the facts are invalid together.
    """
    _refuse_open_facts(files, recognition, statement, caller)
    combined = combine(recognition, statement, choose_architecture(caller))
    config, undetermined = _infer_config(files.reader.path, recognition, combined, caller)
    protocol = _choose_protocol(statement, recognition.dialect, config)
    names = statement.class_names
    return PresetConfig(config, protocol, names, task=statement.task), undetermined


_PARTS = {own.name: part for own in dataclasses.fields(ViTConfig) if (part := part_of(own))}
_OPTIONAL_PARTS = {name: part for name, part in _PARTS.items() if getattr(ViTConfig, name) is None}
"""Parts that a model may lack: each is one fact. Of the others, every field is a fact."""


def flatten_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the caller's arguments with the fields of parts by path."""
    parts = [name for name in _PARTS if name not in _OPTIONAL_PARTS and name in arguments]
    others = {name: value for name, value in arguments.items() if name not in parts}
    return others | flatten({name: arguments[name] for name in parts if arguments[name]})


def unpack_reading(read: Reading | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `read` of a public function states, and its defaults.

    Args:
        read: as for `VisionTransformer.from_preset`.
        arguments: the other arguments of the function.

    Raises:
        ConfigError: `read` is not a dict or has an unknown key, or an argument is unknown.
    """
    others = {k: v for k, v in arguments.items() if k not in Building.__annotations__}
    known_fields(ViTConfig, others, read=Reading)
    keys = list(Reading.__annotations__)
    words = ", ".join(keys)
    if not isinstance(read, Mapping | None):
        raise ConfigError(f"read must be a dict with keys of {words}, found {shown(read)}.")
    for key in read or {}:
        if key not in keys:
            raise ConfigError(f"read has no key {shown(key)}.{nearest(key, keys)} It has {words}.")
    given = {key: value for key, value in (read or {}).items() if value is not None}
    return {"checksum": True, "allow_pickle_weights": False, **given}


def choose_architecture(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the caller's fields that the arrays must agree with."""
    return {
        path: value for path, value in fields.items() if path in inference.PLAIN.keys() - {*_FREE}
    }


def combine(
    recognition: Recognition, statement: Statement, caller: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the fields that the four sources of `resolve` state, before the grid is inferred."""
    dialect, shown = recognition.dialect, dict(recognition.fields)
    for switch in dialect.lacking:  # an array that the file has lost makes no other model of it
        if shown.get(switch.field, switch.plain[0]) not in switch.plain:
            del shown[switch.field]
    conventions = dialect.conventions
    if "num_positions" in shown and "position" in dialect.stated_fields:
        conventions.pop("position", None)  # the number of positions tells what tokens have one
    stated = {**conventions, **statement.fields}
    for name, part in _OPTIONAL_PARTS.items():
        if isinstance(caller.get(name), Mapping) and stated.get(name) is not None:
            caller = {**caller, name: part.read(stated[name]).replace(**caller[name])}
    stated |= caller
    facts = {**shown, **stated}
    if "mlp_dim" in shown and any(path.startswith("block.") for path in caller):
        facts["mlp_dim"] = caller.get("mlp_dim", shown["mlp_dim"])  # the JSON's is that of its MLP
    arithmetic = dialect.compute_arithmetic(facts)
    if "stem.kind" in arithmetic:
        facts["stem.kind"] = caller.get("stem.kind", arithmetic["stem.kind"])
    if facts.get("pool.kind") in TOKEN_POOLINGS and "tokens.class_tokens" not in stated:
        # The array that is missing is then named.
        facts["tokens.class_tokens"] = facts.get("tokens.class_tokens") or 1
    return {**arithmetic, **facts}


def _refuse_open_facts(
    files: OpenSource, recognition: Recognition, statement: Statement, fields: Mapping[str, Any]
) -> None:
    """Refuses a file without JSON if its arrays leave the arithmetic open."""
    dialect = recognition.dialect
    read_as = f"{files.reader.path}: read as {dialect.name}"
    has_architecture = dialect.identity is not None and dialect.identity.key == "architecture"
    by_name = "read={'timm': 'vit_small_patch16_224'} or the like" if has_architecture else ""
    if dialect.needs_json and not any(table.file in files.json for table in dialect.json):
        raise CheckpointError(
            f"{read_as}: {dialect.needs_json} stands in config.json alone. Load the folder that "
            f"has both files{by_name and f', or give {by_name}'}."
        )
    facts = {**statement.fields, **fields}
    open_facts: Mapping[str, str] = {}
    if not dialect.is_named_by(files.json):
        open_facts = dialect.undetermined({**recognition.fields, "prefix": recognition.prefix})
    if missing := {name: values for name, values in open_facts.items() if name not in facts}:
        give = []
        for name, part in nest(dict.fromkeys(missing, "...")).items():
            inside = ", ".join(f"{field!r}: ..." for field in part) if part != "..." else ""
            give.append(f"{name}={{{inside}}}" if inside else f"{name}=...")
        values = "; ".join(f"{name}: {value}" for name, value in missing.items())
        raise CheckpointError(
            f"{read_as}: the arrays do not tell {', '.join(missing)}. Give "
            f"{by_name and f'{by_name}, or the arguments of its card, or '}{', '.join(give)} "
            f"({values})."
        )


def _infer_config(
    path: Path, recognition: Recognition, facts: dict[str, Any], fields: Mapping[str, Any]
) -> tuple[ViTConfig, tuple[str, ...]]:
    """Returns the configuration of a file, and the names of the fields that it leaves open.

    Args:
        path: path of the file, for messages.
        recognition: recognition of its names and shapes.
        facts: fields from the arrays, the dialect, the JSON files and the caller.
        fields: fields from the caller alone.

    Raises:
        CheckpointError: a required field is missing, or the fields are invalid together.
    """
    num_positions = facts.pop("num_positions", None)
    if missing := [name for name in _NEEDED if name not in facts]:
        raise CheckpointError(
            f"{path}: {', '.join(missing)} cannot be inferred from the arrays; give it by name."
        )
    is_open = facts.get("position") == "sincos2d" and "position" not in fields
    if is_open and facts["tokens.class_tokens"]:
        raise CheckpointError(
            f"{path}: there is a class token and no array of position embeddings. If the model was "
            "trained with fixed positions, give position='sincos2d'; otherwise the file has lost "
            "an array."
        )
    try:
        _compare_counts(recognition, facts)
        return inference.with_grid(facts, num_positions, fields)
    except ConfigError as error:
        raise CheckpointError(f"{path}: read as {recognition.dialect.name}: {error}") from error


def _compare_counts(recognition: Recognition, facts: Mapping[str, Any]) -> None:
    """Refuses a number of blocks or stages that is far above the number of arrays.

    A single name such as `block_100000` promises as many blocks; a list of their missing arrays
    would take minutes and gigabytes.
    """
    for placeholder, part in (("l", "blocks"), ("s", "stages"), ("u", "units of a stage")):
        found = inference.numbers(recognition.bindings, placeholder)
        promise = facts.get("num_layers") if placeholder == "l" else max(found, default=0)
        if found and isinstance(promise, int) and promise > 2 * len(found) + 8:
            raise ConfigError(
                f"{shown(promise)} {part} are announced, but there are arrays of {len(found)}, up "
                f"to number {max(found)}."
            )


def _choose_protocol(statement: Statement, dialect: Dialect, config: ViTConfig) -> ProtocolSpec:
    """Returns the protocol that the files state if it fits the model's channels, else a default."""
    if statement.protocol is not None:
        protocol = complete(statement.protocol)
        counts = [len(protocol[k]) for k in ("mean", "std") if isinstance(protocol[k], list)]
        if set(counts) <= {config.channels}:
            return compact(protocol)
        counted = f"A mean or std of {counts[0]} channels, where the model has {config.channels},"
        warn_of_protocol(counted)
    return compact(dialect.images.default(config))
