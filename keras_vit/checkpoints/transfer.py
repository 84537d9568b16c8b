"""From a file to a model, from a model to a file, and from file to file.

In `checkpoints/`, only `load` and `save` of this module import the model.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from keras_vit.checkpoints.adapt import (
    adapt_array,
    adapt_config,
    adapt_dtype,
    complete_numerics,
    replaces_head,
)
from keras_vit.checkpoints.dialects import dialects_named
from keras_vit.checkpoints.export import Track, export
from keras_vit.checkpoints.inspection import (
    Checkpoint,
    CheckpointInfo,
    inspect,
    open_checkpoint,
)
from keras_vit.checkpoints.opening import open_source
from keras_vit.checkpoints.translate import Move
from keras_vit.config import ViTConfig
from keras_vit.config.fields import known_fields
from keras_vit.errors import CheckpointError, shown
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.labels import Labels, expand, shorten
from keras_vit.sources.source import Source
from keras_vit.text import log
from keras_vit.weights.axes import in_order

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer


Named = tuple[str, np.ndarray]

_OPEN = (
    "dialect",
    "variant",
    "num_heads",
    "classifier",
    "position_grid",
    "image_size",
    "numerics",
)
"""Arguments that may be needed because the arrays of a file leave them open."""


def load(
    source: str | os.PathLike[str] | Source,
    *,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | Literal["stored"] | None = "stored",
    dtype: Any = None,
    load_weights: bool = True,
    remat: bool = False,
    trainable: bool = True,
    data_format: str | None = None,
    name: str | None = None,
    labels: Labels | None = None,
    protocol: ProtocolSpec | None = None,
    provenance: Mapping[str, Any] | None = None,
    dialect: str | None = None,
    variant: str | None = None,
    position_grid: int | tuple[int, int] | None = None,
    checksum: bool = True,
    allow_pickle_weights: bool = False,
    **fields: Any,
) -> "VisionTransformer":
    """Builds the model that a checkpoint or preset holds, with its weights and arithmetic.

    Names, shapes and types of all arrays are checked before the model is built, and
    every number must be finite. Arrays are read one at a time. Files of a folder
    are opened once, before any array is read, so that a model never mixes two states of it.

    Args:
        source: a file of weights, a folder as its library writes it, or another source of
            `VisionTransformer.from_preset`.
        num_classes: None keeps the file's head. Another number than the file's makes a head
            with zero weights; 0 leaves the head out.
        image_size: pixels, an int or a pair (height, width); position embeddings are
            resized. None for a model that takes any size per call; `"stored"` for the
            size in the file.
        load_weights: False for the architecture with fresh weights.
        dtype, remat, trainable, data_format, name: as for `VisionTransformer`.
        labels, protocol, provenance: as for `VisionTransformer`; None takes the files' values.
        dialect: name of the dialect to read the file as, if its names are ambiguous.
        variant: name of the variant that the file must be.
        position_grid: (rows, columns) of the stored positions, if the grid is not square.
        checksum: whether to compare a preset's weights with the sha256 in its `config.json`.
        allow_pickle_weights: whether weights may be a pickle of torch (`.bin`, `.pth`), which
            `torch.load(weights_only=True)` of torch 2.7 or newer reads; see SECURITY.md.
        **fields: fields of `ViTConfig`. A caller may change `representation_size` to None
            (which leaves the layer out), the dropout rates, `numerics` (a dict changes the
            numerics that it names), and `classifier` between its pooled and unpooled form. Any
            other field must agree with the file. Another `patch_size` resizes the projection
            of patches as FlexiViT does (`adapt.resize_patches`) and, with them, the positions.

    Raises:
        CheckpointError: arrays do not fit; the message names the file and each such array.
        ConfigError: the fields are invalid together.
    """
    from keras_vit.layers import blank_weights
    from keras_vit.model import VisionTransformer

    known_fields(ViTConfig, fields)
    source = Source.of(source, allow_pickle_weights=allow_pickle_weights)
    fields |= _without_none(
        num_classes=num_classes, dialect=dialect, variant=variant, position_grid=position_grid
    )
    if image_size != "stored":
        fields["image_size"] = image_size
    options = _without_none(
        dtype=dtype,
        data_format=data_format,
        name=name,
        labels=labels,
        protocol=protocol,
        provenance=provenance,
        remat=remat,
        trainable=trainable,
    )
    if not load_weights:
        info = inspect(source, **{name: fields[name] for name in _OPEN if fields.get(name)})
        fields = {k: value for k, value in fields.items() if k not in ("dialect", "variant")}
        config = info.config.replace(**complete_numerics(info.config, fields))
        return VisionTransformer(config, **{**_state_facts(source, info, config), **options})
    with open_source(source, checksum=checksum) as files:
        fields = {**source.defaults, **fields}
        checkpoint = open_checkpoint(files, fields)
        config = adapt_config(checkpoint, fields)
        facts = _state_facts(source, checkpoint.info, config)
        facts["provenance"] = {**source.provenance(files.preset), **_read_scale(checkpoint)}
        with blank_weights():
            model = VisionTransformer(config, **{**facts, **options})
        variables = weights_by_path(model)
        unassigned = set(variables)
        for path, array in _read_weights(checkpoint, config):
            _check_range(array, path, variables[path].dtype, model.compute_dtype, source)
            value = in_order(array).astype(variables[path].dtype, copy=False)
            # Always a copy: JAX may keep the array, and a view points into the mapped file.
            variables[path].assign(value if value.flags.owndata else value.copy())
            unassigned.discard(path)
    if forgotten := [p for p in unassigned if not p.startswith("head/")]:
        raise CheckpointError(f"{source}: nothing was read for {', '.join(sorted(forgotten))}.")
    if source.row is not None:
        source.row.announce(config)
    return model


def _without_none(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _state_facts(source: Source, info: CheckpointInfo, config: ViTConfig) -> dict[str, Any]:
    """Returns what the source states of the model beside its configuration.

    Labels are left out if their number is not the model's.
    """
    labels = source.defaults.get("labels") or info.labels
    fits = labels is not None and len(expand(labels)) == config.num_classes
    return {
        "name": info.variant,
        "protocol": source.defaults.get("protocol", info.protocol),
        "labels": labels if fits else None,
    }


def save(
    model: "VisionTransformer",
    path: str | os.PathLike[str],
    dialect: str = "google",
    *,
    lossy: bool = False,
    track: Track = iter,
) -> None:
    """Writes a model's weights as a checkpoint file of another library.

    The file is written beside its destination and then renamed, so that a reader sees either
    the old file or the complete new file. Of several processes that share the model's distribution
    on JAX, the first writes.

    Args:
        model: a `VisionTransformer`.
        path: path of the file, or of the folder if the library needs JSON beside the weights.
        dialect: a name of `keras_vit.checkpoints.dialects.DIALECTS`, such as
            `"google"`, the dialect of the published files.
        lossy: whether to write a model whose arithmetic the library cannot express.
        track: wraps the list of arrays to show progress, as `tqdm.tqdm` does.

    Raises:
        CheckpointError: the dialect is unknown, or its library cannot hold the
            model's weights or express its arithmetic; or the model is quantised, has unmerged
            LoRA weights, or is no `VisionTransformer`. No file is written.
        WriteError: the destination cannot be written; an existing file there is unchanged.
    """
    from keras_vit.distribution.processes import by_one

    write = writer_of(model)
    by_one(lambda: write(path, dialect, lossy, track), path)


def writer_of(model: "VisionTransformer") -> Callable[..., None]:
    """Returns the function that writes a model's weights, with the arguments of `save` but `model`.

    Weights that the devices of several processes divide are gathered here, in every process.

    Raises:
        CheckpointError: as `save`, of a model that no checkpoint can hold.
    """
    from keras_vit.layers.quantisation import quantised_parts
    from keras_vit.model import VisionTransformer

    if not isinstance(model, VisionTransformer):
        named = f" named {shown(model.name)}" if hasattr(model, "name") else ""
        raise CheckpointError(
            f"model: expected a keras_vit.VisionTransformer, found a {type(model).__name__}{named}."
        )
    if parts := quantised_parts(model.layers):
        name, part = next(iter(parts.items()))
        raise CheckpointError(
            f"The model is quantised ({name} and others: {part['mode']}); checkpoints and presets "
            "hold weights as they were trained. Save before quantize(), or by model.save()."
        )
    if any(weight.name.startswith("lora_kernel") for weight in model.weights):
        raise CheckpointError(
            "The model has LoRA weights, which checkpoints and presets cannot hold. Save "
            "keras_vit.finetune.merge_lora(model), a plain model with the same outputs."
        )
    arrays = _ModelArrays(model)
    protocol = model.preprocessor.protocol

    def write(
        path: str | os.PathLike[str], dialect: str, lossy: bool = False, track: Track = iter
    ) -> None:
        target = dialects_named(dialect)
        export(model.config, arrays, target, path, model.labels, track, lossy, protocol)

    return write


def convert(
    source: str | os.PathLike[str] | Source,
    destination: str | os.PathLike[str],
    dialect: str,
    *,
    lossy: bool = False,
    track: Track = iter,
    allow_pickle_weights: bool = False,
    **arguments: Any,
) -> None:
    """Translates a checkpoint into another dialect, without a model or a backend.

    Arrays keep their type and are processed one at a time.

    Args:
        source: a source as for `load`.
        destination: the file or folder to write; must not be `source`.
        dialect: name of the dialect to write, see `save`; `"keras_vit"` writes weights alone, into
            a `.safetensors` file.
        lossy: whether to write a model whose arithmetic the library cannot express.
        track: wraps the list of arrays to show progress.
        allow_pickle_weights: as for `load`.
        **arguments: arguments of `load` on how to read the file and on its configuration, `labels`
            and `protocol`.

    Raises:
        CheckpointError: as `load` and `save`. No file is written.
    """
    if dialect == "keras_vit" and Path(destination).suffix != ".safetensors":
        raise CheckpointError(
            f"{destination}: a folder of keras_vit is a preset, with its arithmetic, labels and "
            f"protocol. Write it by VisionTransformer.from_preset({str(source)!r})"
            f".save_to_preset({str(destination)!r}); a file of weights alone ends in .safetensors."
        )
    source = Source.of(source, allow_pickle_weights=allow_pickle_weights)
    with open_source(source) as files:
        path = files.reader.path
        own = path.parent if files.is_folder and path.is_file() else path
        if Path(destination).exists() and Path(destination).samefile(own):
            raise CheckpointError(f"{destination}: source and destination are one file.")
        fields = {**source.defaults, **arguments}
        checkpoint = open_checkpoint(files, fields)
        config = adapt_config(checkpoint, fields)
        if config.num_classes and replaces_head(checkpoint.info.config, config):
            raise CheckpointError(
                f"{path}: a conversion makes no new head; num_classes is "
                f"{checkpoint.info.config.num_classes} in the file, or 0 to leave the head behind."
            )
        facts = {**_state_facts(source, checkpoint.info, config), **arguments}
        shortest = shorten(facts["labels"], config.num_classes)
        labels = None if shortest is None else expand(shortest)
        files.verify()  # before anything is written
        target = dialects_named(dialect)
        arrays = _FileArrays(checkpoint, config)
        export(config, arrays, target, destination, labels, track, lossy, facts["protocol"])


def _read_weights(checkpoint: Checkpoint, config: ViTConfig) -> Iterator[Named]:
    """Yields path and array of every stored weight that the model takes."""
    for move in checkpoint.moves:
        yield from _read_move(checkpoint, config, move)


def _read_move(checkpoint: Checkpoint, config: ViTConfig, move: Move) -> Iterator[Named]:
    arrays = [_read_stored(checkpoint, name) for name in move.names]
    for path, array in move.to_weights(arrays):
        adapted = adapt_array(path, array, checkpoint.info.config, config)
        if adapted is not None:
            yield path, adapted


def _read_stored(checkpoint: Checkpoint, name: str) -> np.ndarray:
    """Returns an array of the file; if another array numbers its rows, in the order of these."""
    reader = checkpoint.reader
    array = reader.read(name)
    if not _is_finite(array):
        raise CheckpointError(
            f"{reader.path}: array {name!r} holds NaN or infinity; expected finite numbers. The "
            "training that wrote it diverged, or the file is damaged."
        )
    numbering = checkpoint.dialect.row_numbers.get(name)
    if numbering is None or numbering not in reader.shapes:
        return array
    numbers = reader.read(numbering).reshape(-1)
    if numbers.shape != array.shape[:1] or set(numbers.tolist()) - set(range(len(array))):
        raise CheckpointError(
            f"{reader.path}: array {numbering!r} numbers the rows of {name!r}; expected "
            f"{len(array)} numbers from 0 to {len(array) - 1}, found "
            f"{shown(numbers.tolist(), quoted=False)}."
        )
    return array[numbers.astype(np.intp)]


def _read_scale(checkpoint: Checkpoint) -> dict[str, float]:
    """Returns the temperature and bias of a file of two towers, for `head_from_embeddings`."""
    scale: dict[str, float] = {}
    for name in checkpoint.reader.shapes:
        word = name.rpartition(".")[2]
        if word in ("logit_scale", "logit_bias"):
            number = float(_read_stored(checkpoint, name).reshape(-1)[0])
            scale[word] = math.exp(number) if word == "logit_scale" else number
    return scale


def _is_finite(array: np.ndarray) -> bool:
    # A NaN or infinity makes the sum so, and a sum needs no array of booleans. Large finite
    # numbers may overflow the sum; then every number is checked.
    with np.errstate(over="ignore"):
        total = array.sum(dtype=np.float64 if array.itemsize == 8 else np.float32)
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())


def _check_range(
    array: np.ndarray, path: str, stored_as: str, computed_as: str, source: Source
) -> None:
    """Refuses numbers above float16's range in float16 weights; warns for float16 products."""
    if "float16" not in (stored_as, computed_as) or array.dtype == np.float16:
        return
    largest = float(np.abs(array).max(initial=0.0))
    if largest <= float(np.finfo(np.float16).max):
        return
    fault = f"{source}: {path} holds {largest:g}, and float16 ends at 65504."
    advice = "Load with dtype='mixed_bfloat16' or 'float32'."
    if stored_as == "float16":
        raise CheckpointError(f"{fault} {advice}")
    log.warning("%s float16 arithmetic turns it into infinity. %s", fault, advice)


class _FileArrays:
    """Weights by path, read from a file on demand; `_waiting` holds the others of a move."""

    def __init__(self, checkpoint: Checkpoint, config: ViTConfig) -> None:
        self._checkpoint = checkpoint
        self._config = config
        self._move_of = {path: move for move in checkpoint.moves for path in move.paths}
        self._waiting: dict[str, np.ndarray] = {}

    def dtype(self, path: str) -> np.dtype:
        stored = self._checkpoint.reader.dtypes[self._move_of[path].names[0]]
        return adapt_dtype(path, stored, self._checkpoint.info.config, self._config)

    def read(self, path: str) -> np.ndarray:
        if path not in self._waiting:
            move = self._move_of[path]
            self._waiting.update(_read_move(self._checkpoint, self._config, move))
        return self._waiting.pop(path)


class _ModelArrays:
    """Weights by path, read from a model; from all processes of its distribution at once."""

    def __init__(self, model: "VisionTransformer") -> None:
        from keras_vit.distribution.processes import together, whole

        self._variables: dict[str, Any] = weights_by_path(model)
        if together()[1] > 1:
            self._variables = {path: whole(weight) for path, weight in self._variables.items()}

    def dtype(self, path: str) -> np.dtype:
        return np.dtype(self._variables[path].dtype)

    def read(self, path: str) -> np.ndarray:
        import keras

        array = keras.ops.convert_to_numpy(self._variables[path])
        if not _is_finite(array):
            raise CheckpointError(
                f"The weight {path} holds NaN or infinity, so the model is not saved. Its training "
                "has diverged; go back to an earlier checkpoint of it."
            )
        return array


def weights_by_path(model: "VisionTransformer") -> dict[str, Any]:
    """Returns the model's Keras variables by their path in the lexicon.

    Paths do not depend on the model's name or on a surrounding model.
    """
    variables = {}
    for layer in model.layers:
        for variable in layer.weights:
            start = variable.path.index(f"{layer.name}/")
            variables[variable.path[start:]] = variable
    return variables
