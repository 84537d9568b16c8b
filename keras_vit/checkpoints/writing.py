"""Writes a model as a checkpoint of another library, in a format that can store it.

What a format cannot store is found by a test, not by a list: the names, shapes and JSON for a model
are read back, and the model is refused if the result is a different model.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checkpoints.claims import claim_names
from keras_vit.checkpoints.containers import Reader, write_npz, write_safetensors
from keras_vit.checkpoints.facts import state_facts
from keras_vit.checkpoints.families.family import ARITHMETIC, Format, Library
from keras_vit.checkpoints.families.keys import merge
from keras_vit.checkpoints.match import interpret
from keras_vit.checkpoints.moves import Move, plan
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten, nest
from keras_vit.config.vit import SWITCHES
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.images.class_names import expand
from keras_vit.images.protocols import ProtocolSpec, compact, complete
from keras_vit.presets.preset_config import WEIGHTS_FILE, ModelFacts
from keras_vit.support.files import replace_folder, write_json
from keras_vit.support.text import log


@dataclasses.dataclass(frozen=True)
class WeightArrays:
    """The weights of a model by their path in the lexicon.

    Args:
        dtype: function that returns the dtype of an array, without reading it.
        read: function that returns an array; a caller reads each array once.
    """

    dtype: Callable[[str], np.dtype]
    read: Callable[[str], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Written:
    """A model in the form in which it is written to a format.

    Args:
        format: the format.
        config: the model, without a mask token if the format cannot store it.
        moves: the plan of its arrays.
        files: the JSON files, without the preprocessing of images.
    """

    format: Format
    config: ViTConfig
    moves: list[Move]
    files: dict[str, Any]


def write(
    facts: ModelFacts,
    arrays: WeightArrays,
    formats: Sequence[Format],
    path: str | os.PathLike[str],
    progress: bool = False,
    lossy: bool = False,
) -> None:
    """Writes a checkpoint: a file, or a folder if the library also needs JSON files.

    If writing fails, no file remains. A mask token, which inference does not use, is omitted if the
    library cannot store it. The JSON includes the protocol of images, if the library can express
    it.

    Args:
        facts: what the JSON states about the model; only the configuration for a file of weights.
        arrays: weights of the model.
        formats: formats of one library; the first that can store the model is written.
        path: path of the file or folder.
        progress: whether to show a progress bar on stderr, if it is a terminal.
        lossy: whether to write a model even if the library would compute other outputs.

    Raises:
        CheckpointError: no format can store every weight, or the library would
            compute other outputs and `lossy` is False.
    """
    written = choose_format(facts, formats, lossy)
    format, library, prediction = written.format, written.format.library, facts.prediction
    lost = [prediction.classifier_activation] if prediction.classifier_activation else []
    is_stated = library.states_task or facts.config.dense is not None
    if prediction.task != "single_label" and not is_stated:
        lost.append(f"task={prediction.task!r}")
    if lost:
        computes = "%s computes logits from these files; it does not apply the model's %s."
        log.warning(computes, library.name, " and ".join(lost))
    if written.config != facts.config:
        message = "%s cannot store the mask token, which inference does not use: it is omitted."
        log.info(message, library.name)
    files = written.files
    if files:
        protocol = _protocol_to_write(facts.protocol, format, written.config)
        files = merge([files, library.images.write(protocol, written.config)])
    reader = format.family.fold.write(_Moved(Path(path), written.moves, arrays), files)
    if not files:
        _write_arrays(library, Path(path), reader, progress)
        return
    with replace_folder(path, {*files, WEIGHTS_FILE}, CheckpointError) as folder:
        _write_arrays(library, folder / WEIGHTS_FILE, reader, progress)
        for name, content in files.items():
            write_json(folder / name, content)


def choose_format(facts: ModelFacts, formats: Sequence[Format], lossy: bool = False) -> Written:
    """Returns the model in the form of the first format that can store it.

    Raises:
        CheckpointError: no format can store it; the message names what the nearest format lacks.
    """
    refusals: list[CheckpointError] = []
    possible = [f for f in formats if not (f.library.only_read or f.row.only_read)]
    if not possible:
        reason = formats[0].library.only_read or formats[0].row.only_read
        raise CheckpointError(
            f"{formats[0].name} can be read, but not written: {reason}. Nothing was written."
        )
    has_head = bool(facts.config.num_classes)
    possible = [f for f in possible if f.row.head in (None, has_head)] or possible
    for forgiving in (False, True) if lossy else (False,):
        for format in possible:
            try:
                return _state(facts, format, forgiving)
            except CheckpointError as refusal:
                refusals.append(refusal)
    raise min(refusals[-len(possible) :], key=lambda refusal: len(refusal.differences))


def _state(facts: ModelFacts, format: Format, lossy: bool) -> Written:
    """Returns the model in the form of one format.

    Raises:
        CheckpointError: the format cannot store it; the message names each feature that it lacks.
    """
    config, library = facts.config, format.library
    if not format.names.get("mask_token/token"):
        config = config.replace(tokens={"mask": False})
    moves = plan(config, format)
    lost = format.find_met(config)
    if facts.prediction.is_binary and library.states_task:
        lost.append("a single logit for two classes (use two logits or task='multi_label')")
    files: dict[str, Any] = {}
    try:
        if format.row.head is not None and format.row.head != bool(config.num_classes):
            lost.append(f"num_classes={config.num_classes}")
        names = None if facts.class_names is None else expand(facts.class_names)
        files = format.write_json(config, names, facts.task)
        read = _read_back(format, config, {move.name: move.file_shape for move in moves}, files)
        differences = _find_differences(format, config, read)
    except (ConfigError, LookupError, ValueError) as error:
        # The JSON cannot state a value that the arrays to be written have.
        lost += getattr(error, "differences", ()) or [str(error).removesuffix(".")]
        differences = {}
    computes = {f: words for f, words in differences.items() if "but it uses" in words}
    lost += [words for field, words in differences.items() if field not in computes]
    if lost or (computes and not lossy):
        advice = (
            "lossy=True writes the weights nevertheless; the library then computes other outputs."
        )
        refusal = CheckpointError(
            f"{library.name} cannot express this model: {'; '.join([*lost, *computes.values()])}. "
            f"Nothing was written.{'' if lost else f' {advice}'}"
        )
        refusal.differences = (*lost, *computes.values())
        raise refusal
    prefixed = plan(config, format, format.row.prefix) if format.row.prefix else moves
    return Written(format, config, prefixed, files)


def _read_back(
    format: Format, config: ViTConfig, shapes: dict[str, tuple[int, ...]], files: dict[str, Any]
) -> ViTConfig:
    """Returns the model that would be read from these names, shapes and JSON files.

    Raises:
        ConfigError, ValueError: they do not describe a valid model.
    """
    if format.name == "keras_vit":  # a preset's config.json has every field
        return config
    given: dict[str, Any] = {}
    if not files:
        given = {"num_heads": config.num_heads, "position_grid": config.source_grid}
        if config.pool.kind == "unpooled":  # which has the same arrays as the pooled form
            given["pool.kind"] = "unpooled"
    if not config.has_learned_positions:  # else a class token would mean that an array is lost
        given["position"] = "sincos2d"
    stated_fields = {*format.fixed, *format.stated}
    given = {field: value for field, value in given.items() if field not in stated_fields}
    stated = format.library.read(files, [format])
    evidence = interpret(format, shapes, claim_names(shapes, (format,))[format])
    facts = state_facts(evidence, stated, given, {})
    facts = {**facts, **{f: v for f, v in format.fixed.items() if f not in format.stated}}
    grid = {"image_size": config.image_size, "position_grid": config.position_grid}
    facts.pop("num_positions", None)
    return ViTConfig.from_dict(nest({**facts, **grid}))


def _find_differences(format: Format, config: ViTConfig, read: ViTConfig) -> dict[str, str]:
    """Returns the fields in which a model differs from the one read back, and a phrase for each."""
    have, found = flatten(config.to_dict()), flatten(read.to_dict())
    have, found = _with_whole_parts(have, found), _with_whole_parts(found, have)
    resizes = config.has_learned_positions and {"position_resize"} & {*format.fixed, *format.stated}
    differences: dict[str, str] = {}
    for field in dict.fromkeys((*have, *found)):
        own, other = have.get(field), found.get(field)
        if field == "block.layer_scale" and None not in (own, other):
            continue
        if own == other or field in _NOT_IN_FILES:
            continue
        if field == "position_resize" and not resizes:
            continue  # matters only for other image sizes than the stored one
        switch = next(
            (s for s in SWITCHES.values() if s.field == field and own not in s.plain), None
        )
        words = switch.words if switch and other in switch.plain else f"{field}={own!r}"
        if field in _ARITHMETIC and "none" not in (own, other):
            words = f"{field}={own!r}, but it uses {other!r}"
        differences[field] = words
    return differences


def _with_whole_parts(fields: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a model, with a single one for a part that the other model lacks."""
    whole = {name: value for name, value in nest(fields).items() if name in others}
    return whole | {f: v for f, v in fields.items() if f.partition(".")[0] not in whole}


_ARITHMETIC = (*ARITHMETIC, "pool.norm", "stem.kind")
"""Fields that change the outputs computed from the same arrays."""
_NOT_IN_FILES = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")
"""Fields that matter only in training, which files need not state."""


def _protocol_to_write(protocol: ProtocolSpec, format: Format, config: ViTConfig) -> dict[str, Any]:
    """Returns the model's protocol if the library can express it, or else its default protocol."""
    spec, images = complete(protocol), format.library.images
    if images.expresses(spec):
        return spec
    own = complete(images.default(config)) | {k: spec[k] for k in ("mean", "std")}
    if own == spec:
        return spec
    message = "%s cannot express the protocol %s; its files state %s instead."
    log.warning(message, format.library.name, compact(spec), compact(own))
    return own


def _write_arrays(library: Library, path: Path, reader: Reader, progress: bool) -> None:
    names = list(reader.shapes)
    if library.container == "safetensors":  # in the order of the safetensors library
        names.sort(key=lambda name: (-reader.dtypes[name].itemsize, name))

    def read_all() -> Iterator[tuple[str, np.ndarray]]:
        from keras_vit.support.progress import progress_bar  # imports rich

        with progress_bar(progress, "Writing", len(names), "arrays") as advance:
            for name in names:
                yield name, reader.read(name)
                advance(1)

    named = read_all()
    if library.container == "npz":
        write_npz(path, named)
    else:
        specs = [(name, reader.shapes[name], reader.dtypes[name]) for name in names]
        write_safetensors(path, specs, (array for _, array in named), library.metadata)


class _Moved(Reader):
    """The arrays of a checkpoint, each computed from a model's weights when it is read."""

    def __init__(self, path: Path, moves: Iterable[Move], arrays: WeightArrays) -> None:
        super().__init__(path)
        self._moves = {move.name: move for move in moves}
        self._arrays = arrays
        for name, move in self._moves.items():
            self.shapes[name] = move.file_shape
            # Weights that are stored in one array share its type.
            types = map(arrays.dtype, move.paths)
            self.dtypes[name] = functools.reduce(np.promote_types, types)

    def read(self, name: str) -> np.ndarray:
        move, dtype = self._moves[name], self.dtypes[name]
        weights = [self._arrays.read(path).astype(dtype, copy=False) for path in move.paths]
        return move.to_array(weights)
