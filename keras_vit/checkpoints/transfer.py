"""Loads models from checkpoints, saves models as checkpoints, and converts checkpoints.

`load` takes the class of the model as an argument, because the model imports this module.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.adapt import (
    OUTPUTS,
    adapt_array,
    adapt_config,
    adapt_dtype,
    add_scales,
    complete_fields,
    complete_outputs,
    replaces_head,
)
from keras_vit.checkpoints.containers import Reader
from keras_vit.checkpoints.facts import unpack_reading
from keras_vit.checkpoints.families import formats_named
from keras_vit.checkpoints.moves import Move
from keras_vit.checkpoints.opening import open_source
from keras_vit.checkpoints.reading import Checkpoint, CheckpointInfo, open_checkpoint
from keras_vit.checkpoints.reading import info as read_info
from keras_vit.checkpoints.writing import WeightArrays, write
from keras_vit.config import ImageSize, Prediction, ViTConfig
from keras_vit.config.rules import is_any_size
from keras_vit.config.weights import lexicon
from keras_vit.config.weights.axes import copy_in_order
from keras_vit.errors import CheckpointError, expect_model
from keras_vit.images.class_names import expand, shorten
from keras_vit.models.building import Building, Family, Reading
from keras_vit.presets.preset_config import ModelFacts
from keras_vit.presets.source import Source
from keras_vit.support.memory import allocate_pages, give, gives_a_copy
from keras_vit.support.text import log, warn

Named = tuple[str, np.ndarray]

_OF_MODEL = frozenset(Building.__annotations__)
"""Arguments of the model; None means the value of the files, or else the model's default."""
_NOT_NONE = ("num_classes", "position_grid")
"""Arguments that are not given if they are None; for other fields, None is a value."""


def load(
    build: Callable[..., Any],
    source: str | os.PathLike[str] | Source,
    *,
    image_size: ImageSize = None,
    load_weights: bool = True,
    read: Reading | None = None,
    **arguments: Any,
) -> Any:
    """Loads the model of a checkpoint or preset, see `VisionTransformer.from_preset`.

    Args:
        build: class of the model; it is called with a `ViTConfig` and the facts of the source.
        source: source of the checkpoint; `VisionTransformer.from_preset` documents all arguments.

    Raises:
        CheckpointError: arrays do not match; the message names the file and each such array.
        ConfigError: the fields are invalid together.
    """
    from keras_vit.layers import blank_weights

    how = unpack_reading(read, arguments)
    given = {k: v for k, v in arguments.items() if k not in _NOT_NONE or v is not None}
    options = {k: v for k, v in given.items() if k in _OF_MODEL and v is not None}
    outputs = {k: v for k, v in given.items() if k in OUTPUTS}
    fields = {k: v for k, v in given.items() if k not in _OF_MODEL} | _stated_size(image_size)
    source = Source.parse(source, allow_pickle_weights=how["allow_pickle_weights"])
    if not load_weights:
        info = read_info(source, read=read, **fields)
        config = info.config.replace(**complete_fields(info.config, fields))
        model = build(config, **{**_state_facts(source, info, config, outputs), **options})
        model.title = options.get("name", source.title)
        return model
    with open_source(source, checksum=how["checksum"]) as files:
        fields = {**source.defaults, **fields, **how}
        checkpoint = open_checkpoint(files, fields)
        config = adapt_config(checkpoint, fields)
        facts = _state_facts(source, checkpoint.info, config, outputs)
        facts["provenance"] = {**source.provenance(files.preset), **_read_scale(files.reader)}
        with blank_weights():
            model = build(config, **{**facts, **options})
        model.title = options.get("name", source.title)
        variables = weights_by_path(model)
        unassigned = set(variables)
        for path, array in _read_weights(checkpoint, config):
            value = _cast(array, path, variables[path].dtype, model.compute_dtype, source)
            give(variables[path], value)
            unassigned.discard(path)
    if config.dense is not None and "head/output/kernel" in unassigned:
        model.get_layer("head").reset_output()
    if forgotten := [p for p in unassigned if not p.startswith("head/")]:
        raise CheckpointError(f"{source}: nothing was read for {', '.join(sorted(forgotten))}.")
    if source.row is not None:
        source.row.announce(config)
    return model


def _stated_size(image_size: ImageSize) -> dict[str, Any]:
    """Returns the field for the caller's size: None for any size, no field for the stored size."""
    if image_size is None:
        return {}
    return {"image_size": None if is_any_size(image_size) else image_size}


def _state_facts(
    source: Source, info: CheckpointInfo, config: ViTConfig, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of a model from source and caller, except its configuration.

    Class names are dropped if their number does not fit the model, and thresholds if the head or
    the task has changed.
    """
    class_names = source.defaults.get("class_names") or info.class_names
    outputs = complete_outputs(info, config, arguments)
    prediction = Prediction(config.num_classes, outputs["task"], outputs["classifier_activation"])
    fits = class_names is not None and len(expand(class_names)) == prediction.num_answers
    has_head = info.config.num_classes == config.num_classes
    if class_names is not None and has_head and config.num_classes and not fits:
        counts = len(expand(class_names)), prediction.num_answers
        log.warning("%s: ignored %d class names for a head of %d classes.", source, *counts)
    return {
        "protocol": source.defaults.get("protocol", info.protocol),
        "class_names": class_names if fits and (has_head or info.task == "single_label") else None,
        "thresholds": info.thresholds if has_head and prediction.task == "multi_label" else None,
        **outputs,
    }


def save(
    model: Any,
    path: str | os.PathLike[str],
    family: Family = "google",
    *,
    lossy: bool = False,
    progress: bool = False,
) -> None:
    """Saves a model as a checkpoint of another library, such as timm or transformers.

    The file is written atomically: a reader sees either the old file or the complete new file. If
    several processes share the model's distribution on JAX, the first process writes.

    Args:
        model: a `VisionTransformer`.
        path: path of the file, or of the folder if the library also needs JSON files.
        family: name of the format, such as `"google"` for the format of the official checkpoints;
            for `"transformers"`, its families are tried in turn.
        lossy: whether to write a model even if the library would compute other outputs.
        progress: whether to show a progress bar on stderr, if it is a terminal.

    Raises:
        CheckpointError: the family is unknown, or its library cannot store the
            model's weights or express its arithmetic; or the model is quantised, has unmerged
            LoRA weights, or is not a `VisionTransformer`. No file is written.
        WriteError: the destination cannot be written; an existing file there is unchanged.
    """
    from keras_vit.distribution.processes import write_once

    arrays = arrays_to_write(model)
    facts = ModelFacts(
        model.config,
        model.preprocessor.protocol,
        model.class_names,
        task=model.task,
        classifier_activation=model.prediction.classifier_activation,
    )
    target = formats_named(family)

    write_once(lambda: write(facts, arrays, target, path, progress, lossy), path)


def arrays_to_write(model: Any) -> WeightArrays:
    """Returns the weights of a model, for a checkpoint.

    Weights that are sharded over several processes are gathered here, in every process.

    Raises:
        CheckpointError: no checkpoint can store the model: it is quantised, has unmerged LoRA
            weights, or is not a `VisionTransformer`.
    """
    import keras

    from keras_vit.distribution.processes import process_group, whole
    from keras_vit.layers.quantisation import quantised_parts

    if parts := quantised_parts(expect_model(model, CheckpointError).layers):
        name, part = next(iter(parts.items()))
        raise CheckpointError(
            f"The model is quantised ({name} and others: {part['mode']}); checkpoints and presets "
            "cannot store it. Save it before quantize(), or with model.save()."
        )
    if any(weight.name.startswith("lora_kernel") for weight in model.weights):
        raise CheckpointError(
            "The model has LoRA weights, which checkpoints and presets cannot store. Save "
            "keras_vit.training.merge_lora(model), a plain model with the same outputs."
        )
    variables: dict[str, Any] = weights_by_path(model)
    written = {id(variables.get(weight.path)) for weight in lexicon.weights(model.config)}
    if own := [weight.path for weight in model.weights if id(weight) not in written]:
        rest = "Presets and checkpoints cannot store them; model.save(name.keras) does."
        warn(f"{type(model).__name__} has {len(own)} additional weights, such as {own[0]}. {rest}")
    if process_group()[1] > 1:
        variables = {path: whole(weight) for path, weight in variables.items()}

    def read(path: str) -> np.ndarray:
        array = keras.ops.convert_to_numpy(variables[path])
        if not _is_finite(array):
            raise CheckpointError(
                f"The weight {path} contains NaN or infinity, so the model is not saved. Training "
                "has diverged; resume from an earlier checkpoint."
            )
        return array

    return WeightArrays(lambda path: np.dtype(variables[path].dtype), read)


def convert(
    source: str | os.PathLike[str] | Source,
    path: str | os.PathLike[str],
    family: Family,
    *,
    lossy: bool = False,
    progress: bool = False,
    read: Reading | None = None,
    **arguments: Any,
) -> None:
    """Converts a checkpoint to the format of another library, without a model or a backend.

    Arrays keep their type and are processed one at a time.

    Args:
        source: a source as for `VisionTransformer.from_preset`.
        path: the file or folder to write; must not be `source`.
        family: name of the format to write, see `save`; `"keras_vit"` writes only the weights, to
            a `.safetensors` file.
        lossy: whether to write a model even if the library would compute other outputs.
        progress: whether to show a progress bar on stderr, if it is a terminal.
        read: as for `from_preset`.
        **arguments: further arguments of `from_preset`: fields of the configuration, `class_names`
            and `protocol`.

    Raises:
        CheckpointError: as `from_preset` and `save`. No file is written.
    """
    if family == "keras_vit" and Path(path).suffix != ".safetensors":
        raise CheckpointError(
            f"{path}: expected a name that ends in .safetensors, for a file with only the weights. "
            f"To write a preset folder, use VisionTransformer.from_preset({str(source)!r})"
            f".save_to_preset({str(path)!r})."
        )
    how = unpack_reading(read, arguments)
    source = Source.parse(source, allow_pickle_weights=how["allow_pickle_weights"])
    with open_source(source, checksum=how["checksum"]) as files:
        file_path = files.reader.path
        is_inside = files.is_folder and file_path.is_file()
        own = (file_path, file_path.parent) if is_inside else (file_path,)
        if os.path.exists(path) and any(  # noqa: PTH110  a long name does not raise
            map(Path(path).samefile, own)
        ):
            raise CheckpointError(f"{path}: source and destination are the same file.")
        size = _stated_size(arguments.pop("image_size", None))
        fields = {**source.defaults, **arguments, **size, **how}
        checkpoint = open_checkpoint(files, fields)
        config = adapt_config(checkpoint, fields)
        if config.num_classes and replaces_head(checkpoint.info.config, config):
            raise CheckpointError(
                f"{file_path}: a conversion cannot make a new head. Expected num_classes="
                f"{checkpoint.info.config.num_classes}, as in the file, or 0 for no head."
            )
        stated = _state_facts(source, checkpoint.info, config, arguments)
        stated |= {k: arguments[k] for k in ("class_names", "protocol") if k in arguments}
        facts = ModelFacts(config, **stated)
        names = shorten(facts.class_names, facts.prediction.num_answers)
        facts = dataclasses.replace(facts, class_names=names)
        target = formats_named(family)
        arrays = _collect_arrays(checkpoint, config)
        write(facts, arrays, target, path, progress, lossy)


def _read_weights(checkpoint: Checkpoint, config: ViTConfig) -> Iterator[Named]:
    for move in checkpoint.moves:
        yield from _read_move(checkpoint, config, move)
    yield from add_scales(checkpoint.info.config, config)


def _read_move(checkpoint: Checkpoint, config: ViTConfig, move: Move) -> Iterator[Named]:
    for path, array in move.to_weights(_read_stored(checkpoint.reader, move.name)):
        with np.errstate(over="ignore"):
            adapted = adapt_array(path, array, checkpoint.info.config, config)
        if adapted is None:
            continue
        if adapted.dtype != array.dtype and not _is_finite(adapted):
            raise _beyond(adapted.dtype, array, path, checkpoint.reader.path, "")
        yield path, adapted


def _read_stored(reader: Reader, name: str) -> np.ndarray:
    """Reads an array, and checks that all values are finite."""
    array = reader.read(name)
    if not _is_finite(array):
        raise CheckpointError(
            f"{reader.path}: array {name!r} contains NaN or infinity; expected finite values. "
            "Its training has diverged, or the file is damaged."
        )
    return array


def _read_scale(reader: Reader) -> dict[str, float]:
    """Returns the temperature and bias of a two-tower file, for `head_from_embeddings`."""
    scale: dict[str, float] = {}
    for name in reader.shapes:
        word = name.rpartition(".")[2]
        if word in ("logit_scale", "logit_bias"):
            number = float(_read_stored(reader, name).reshape(-1)[0])
            if word == "logit_scale" and number > 700:  # math.exp overflows
                raise CheckpointError(
                    f"{reader.path}: {name!r} is {number:g}, expected the logarithm of "
                    "a temperature, such as 4.6."
                )
            scale[word] = math.exp(number) if word == "logit_scale" else number
    return scale


def _is_finite(array: np.ndarray) -> bool:
    # A sum with a NaN or infinity is not finite; this avoids an array of booleans. If large finite
    # values overflow the sum, every value is checked.
    with np.errstate(over="ignore"):
        total = array.sum(dtype=np.float64 if array.itemsize == 8 else np.float32)
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())


def _cast(
    array: np.ndarray, path: str, stored_as: str, computed_as: str, source: Source
) -> np.ndarray:
    """Returns the array, which may be memory-mapped, for `give`: in the dtype of the weight.

    Values beyond the range of that dtype are refused; values beyond the range of float16 cause a
    warning if the model computes in float16.
    """
    with np.errstate(over="ignore"):
        if gives_a_copy():
            value = array.astype(stored_as, copy=False)
        else:
            value = copy_in_order(array, stored_as, allocate_pages)
    if value.dtype != array.dtype and not _is_finite(value):
        wider = "'mixed_bfloat16' or 'float32'" if stored_as == "float16" else "'float64'"
        raise _beyond(value.dtype, array, path, source, f" Load with dtype={wider}.")
    if computed_as == "float16" != stored_as and _largest(value) > 65504:
        log.warning(
            "%s: %s contains %g, which overflows in float16 arithmetic (65504 at most). Load "
            "with dtype='mixed_bfloat16' or 'float32'.",
            source,
            path,
            _largest(value),
        )
    return value


def _beyond(
    dtype: np.dtype, array: np.ndarray, path: str, source: object, advice: str
) -> CheckpointError:
    """Returns the error for an array with values beyond the range of a dtype."""
    end = float(ml_dtypes.finfo(dtype).max)
    return CheckpointError(
        f"{source}: {path} contains {_largest(array):g}, above the {dtype.name} maximum {end:g}."
        f"{advice}"
    )


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0.0))


def _collect_arrays(checkpoint: Checkpoint, config: ViTConfig) -> WeightArrays:
    """Returns the weights of a file, which are read on demand, together if they share an array."""
    move_of = {path: move for move in checkpoint.moves for path in move.paths}
    waiting = dict(add_scales(checkpoint.info.config, config))

    def dtype(path: str) -> np.dtype:
        if path in waiting:
            return waiting[path].dtype
        stored = checkpoint.reader.dtypes[move_of[path].name]
        return adapt_dtype(path, stored, checkpoint.info.config, config)

    def read(path: str) -> np.ndarray:
        if path not in waiting:
            waiting.update(_read_move(checkpoint, config, move_of[path]))
        return waiting.pop(path)

    return WeightArrays(dtype, read)


def weights_by_path(model: Any) -> dict[str, Any]:
    """Returns the model's Keras variables by their path in the lexicon.

    Paths do not depend on the model's name, or on a model that contains it.
    """
    variables = {}
    for layer in model.layers:
        for variable in layer.weights:
            start = variable.path.index(f"{layer.name}/")
            variables[variable.path[start:]] = variable
    return variables
