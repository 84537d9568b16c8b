"""Writes a model's arrays as a checkpoint of another library, in the family that can hold them."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from keras_vit.checkpoints.containers import (
    Reader,
    write_npz,
    write_safetensors,
)
from keras_vit.checkpoints.dialects import Dialect
from keras_vit.checkpoints.dialects.base import find_met
from keras_vit.checkpoints.translate import Move, plan
from keras_vit.config import Prediction, ViTConfig
from keras_vit.errors import CheckpointError
from keras_vit.images.class_names import expand
from keras_vit.images.protocols import ProtocolSpec, compact, complete
from keras_vit.presets.preset_config import WEIGHTS_FILE, ModelFacts
from keras_vit.support.files import replace_folder, write_json
from keras_vit.support.text import log


@dataclasses.dataclass(frozen=True)
class WeightArrays:
    """The weights of a model by their path in the lexicon.

    Args:
        dtype: function that returns the type of an array, without reading it.
        read: function that returns an array; a caller reads each array once.
    """

    dtype: Callable[[str], np.dtype]
    read: Callable[[str], np.ndarray]


def export(
    facts: ModelFacts,
    arrays: WeightArrays,
    dialects: Sequence[Dialect],
    path: str | os.PathLike[str],
    progress: bool = False,
    lossy: bool = False,
) -> None:
    """Writes a checkpoint: a file, or a folder if the library needs JSON beside the weights.

    A failure leaves no file. A mask token, which inference does not read, is left out where the
    library has no place for it. The JSON states the protocol of images in the library's words, if
    the library can express it.

    Args:
        facts: what the JSON states of the model; the configuration alone for weights alone.
        arrays: weights of the model.
        dialects: families of one library; the first that can hold the model is written.
        path: path of the file or folder.
        progress: whether a bar is shown on stderr, if it is a terminal.
        lossy: whether to write a model that the library would compute differently.

    Raises:
        CheckpointError: no family has a place for every weight, or the library would
            compute the model differently and `lossy` is False.
    """
    prediction = facts.prediction
    dialect, config, moves = _choose(facts, dialects, lossy)
    lost = [prediction.classifier_activation] if prediction.classifier_activation else []
    if prediction.task != "single_label" and "task" not in dialect.stated_fields:
        lost.append(f"task={prediction.task!r}")
    if lost:
        computes = "%s computes logits from these files, without the model's %s."
        log.warning(computes, dialect.library, " and ".join(lost))
    protocol = _protocol_to_write(facts.protocol, dialect, config)
    names = None if facts.class_names is None else expand(facts.class_names)
    files = dialect.write_json(config, names, protocol, prediction.task)
    reader: Reader = _Moved(Path(path), moves, arrays)
    if dialect.fold is not None:
        reader = dialect.fold.write(reader, files)
    if not files:
        _write_arrays(dialect, Path(path), reader, progress)
        return
    with replace_folder(path, {*files, WEIGHTS_FILE}, CheckpointError) as folder:
        _write_arrays(dialect, folder / WEIGHTS_FILE, reader, progress)
        for name, content in files.items():
            write_json(folder / name, content)


def _choose(
    facts: ModelFacts, dialects: Sequence[Dialect], lossy: bool
) -> tuple[Dialect, ViTConfig, list[Move]]:
    """Returns the first family that can hold the model, the model it holds, and the plan."""
    config, refusals = facts.config, list[CheckpointError]()
    written = [dialect for dialect in dialects if not dialect.only_read]
    if not written:
        raise CheckpointError(
            f"{dialects[0].name} is read and not written: {dialects[0].only_read}. Nothing was "
            "written."
        )
    for forgiving in (False, True) if lossy else (False,):
        for dialect in written:
            has_place = dialect.all_names("mask_token/token")
            held = config if has_place else config.replace(tokens={"mask": False})
            try:
                moves = plan(held, dialect, dialect.prefix_for(held))
                check_expressible(held, dialect, forgiving, facts.prediction)
                if held != config:
                    lost = "has no place for the mask token, which inference does not read"
                    log.info("%s %s: it is left out.", dialect.library, lost)
                return dialect, held, moves
            except CheckpointError as refusal:
                refusals.append(refusal)
    raise refusals[-len(written)]


def _protocol_to_write(protocol: ProtocolSpec, dialect: Dialect, config: ViTConfig) -> ProtocolSpec:
    """Returns the model's protocol if the library can express it, else the library's default."""
    spec = complete(protocol)
    if dialect.images.expresses(spec):
        return spec
    own = complete(dialect.images.default(config)) | {k: spec[k] for k in ("mean", "std")}
    if dialect.json:
        message = "%s cannot express the protocol %s: its files state %s."
        log.warning(message, dialect.library, compact(spec), compact(own))
    return own


def _write_arrays(dialect: Dialect, path: Path, reader: Reader, progress: bool) -> None:
    names = list(reader.shapes)
    if dialect.container == "safetensors":  # in the order of the safetensors library
        names.sort(key=lambda name: (-reader.dtypes[name].itemsize, name))

    def read_all() -> Iterator[tuple[str, np.ndarray]]:
        from keras_vit.support.progress import progress_bar  # imports rich

        with progress_bar(progress, "Writing", len(names), "arrays") as advance:
            for name in names:
                yield name, reader.read(name)
                advance(1)

    named = read_all()
    if dialect.container == "npz":
        write_npz(path, named)
    else:
        specs = [(name, reader.shapes[name], reader.dtypes[name]) for name in names]
        write_safetensors(path, specs, (array for _, array in named), dialect.metadata)


class _Moved(Reader):
    """The arrays of a checkpoint, each made of a model's weights when it is read."""

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


def check_expressible(
    config: ViTConfig,
    dialect: Dialect,
    lossy: bool = False,
    prediction: Prediction | None = None,
) -> None:
    """Refuses a model that no file of the dialect can hold, or that its library lacks.

    Args:
        config: configuration of the model.
        dialect: the family to write.
        lossy: whether the library may compute the model differently.
        prediction: what the outputs of the model say, or None.

    Raises:
        CheckpointError: the message names what the library cannot express.
    """
    impossible = find_met(dialect.refusals, config)
    if prediction and prediction.is_binary and "task" in dialect.stated_fields:
        two = "one logit for two classes (two logits or task='multi_label' can be written)"
        impossible.append(two)
    reasons = dialect.find_other_arithmetic(config)
    if not impossible and (lossy or not reasons):
        return
    advice = " lossy=True writes the weights nevertheless; the library then computes other outputs."
    raise CheckpointError(
        f"{dialect.library} cannot express this model: {'; '.join(impossible + reasons)}. Nothing "
        f"was written.{'' if impossible else advice}"
    )
