"""Feature extraction: the outputs of any stage for a data set, optionally cached on disk."""

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.config.pool import StagePooling
from keras_vit.config.rules import choice
from keras_vit.distribution.processes import broadcast_from_first, process_group, whole
from keras_vit.errors import ConfigError, expect_model
from keras_vit.evaluation.batches import Batch, count_images, predict, read_batches, split_images
from keras_vit.evaluation.parts import Parts
from keras_vit.evaluation.targets import numbers_or_rows, undo_one_hot
from keras_vit.images.inputs import as_array, images_in
from keras_vit.images.resampling import read_pixels
from keras_vit.models.tokens import choose_stage
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.progress import progress_bar

OUTPUT_DTYPES = choice("float32", "float16")
"""Data types of features."""


class Features(NamedTuple):
    """Features and labels of a data set.

    Args:
        values: float32, or float16 by `output_dtype`, `(images, width)`; `(images, tokens,
            hidden_size)` for a stage of tokens; a memory map of the file with `cache`.
        labels: int32 `(images,)`; multi-label, bool `(images, classes)`; regression, float32
            `(images, outputs)`; None if the data have no labels.
    """

    values: np.ndarray
    labels: np.ndarray | None


def features(
    model: VisionTransformer,
    data: Any,
    stage: str | None = None,
    *,
    pooling: StagePooling | None = None,
    output_dtype: str = "float32",
    batch_size: int = 32,
    prepared: bool = False,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Features:
    """Extracts features: the output of a stage of the frozen model for every image.

    Args:
        model: a `VisionTransformer`.
        data: images or data sets as for `keras_vit.evaluate`; labels are optional, and need not be
            the model's classes.
        stage: name of a stage, such as `"block_3"` or `"encoder_norm"`, see `VisionTransformer`.
            None for `"pre_logits"`, the input of the head, the representation of section 4.1; with
            a pooling, for the tokens of the last block after the last norm.
        pooling: how the tokens become one vector: `"token"`, the class token; `"gap"`, the mean
            of the patch tokens, without the learned tokens; `"token_and_mean"`, both concatenated
            (DINOv2, Virchow). None for the output of the stage as it is.
        output_dtype: `"float32"` or `"float16"`, which takes half of the memory and disk.
        batch_size: images per step; a data set has its own batches.
        prepared: whether the images are an array that `model.preprocessor` has prepared.
        cache: a folder that keeps the features, which may be larger than memory: the features
            of these data, weights and stage are computed once, and an interrupted run resumes.
            Arrays are identified by their bytes; files by name, size and modification time, or by
            their pixels if an `ImageData` keeps these in memory; a `PyDataset` by its length, its
            `labels` and `paths` if it has them, and its first and last batch; other data only by
            their first batch.
        progress: whether a progress bar is shown on stderr, if it is a terminal.

    Raises:
        ConfigError: the model has no such stage or pooling, the data are empty, the images do not
            fit the model, or features are not finite, or too large for `output_dtype`.

    >>> import numpy as np, keras_vit
    >>> model = keras_vit.VisionTransformer.from_preset("vit_digits")
    >>> keras_vit.evaluation.features(model, np.zeros((3, 8, 8), "uint8")).values.shape
    (3, 64)
    """
    OUTPUT_DTYPES.check("output_dtype", output_dtype)
    name = choose_stage(expect_model(model), stage, pooling)
    return gather(
        model,
        [name],
        data,
        batch_size,
        cache,
        progress,
        output_dtype=output_dtype,
        prepared=prepared,
    )


def gather(
    model: VisionTransformer,
    stages: Sequence[str],
    data: Any,
    batch_size: int = 32,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = False,
    output_dtype: str = "float32",
    prepared: bool = False,
) -> Features:
    """Returns several stages for every image, concatenated along their last axis.

    The other arguments and errors are those of `features`.
    """
    bar = progress_bar(progress, "Computing features", count_images(data))
    stream = read_batches(model, data, batch_size, prepared)
    first = next(stream, None)
    if first is None:
        raise ConfigError("The data are empty, expected at least one batch.")
    size = len(first.images)
    as_rows = _choose_label_reader(data)
    stream = itertools.chain([first], stream)
    if cache is None:
        steps = []
        with bar as advance:
            for rows in _steps(model, stages, stream, size, output_dtype, as_rows):
                steps.append(rows)
                advance(len(rows))
        values = np.concatenate(steps)
    else:
        name = "-".join(stages).replace("/", "_")
        task = {
            **identify(model, name, output_dtype),
            "data": _describe(model, data, first, prepared),
        }
        digest = hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()
        path = Path(cache) / f"{name}-{digest[:16]}.npy"
        exists = path.exists()
        if not (exists if process_group()[1] == 1 else broadcast_from_first(exists)):
            with Parts(path, task) as parts, bar as advance:
                if hasattr(data, "__next__"):  # a generator cannot be restarted
                    stream = itertools.islice(stream, parts.inputs, None)
                elif parts.inputs:
                    stream = read_batches(model, data, batch_size, prepared, parts.inputs)
                advance(parts.count)
                for rows in _steps(model, stages, stream, size, output_dtype, as_rows):
                    parts.append(rows, inputs=1)
                    advance(len(rows))
                parts.finish()
        values = _load(path)
    if "labels" not in (values.dtype.names or ()):
        return Features(values["values"], None)
    labels = values["labels"]
    is_known = getattr(data, "task", None) in ("multi_label", "regression")
    return Features(values["values"], labels if is_known else undo_one_hot(labels))


def _choose_label_reader(data: Any) -> Callable[[Any], np.ndarray]:
    """Returns the function that turns the labels of a batch into an array."""
    task = getattr(data, "task", None)
    if task == "multi_label":
        return lambda labels: as_array(labels).astype(bool)
    return as_array if task == "regression" else numbers_or_rows


def _load(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise ConfigError(f"{path}: this cache is damaged ({error}). Remove it.") from error


def identify(model: VisionTransformer, stage: str, output_dtype: str) -> dict[str, Any]:
    """Returns everything that determines the features of an image, as plain JSON types."""
    digest = hashlib.sha256()
    for weight in model.weights:
        digest.update(f"{weight.name} {weight.dtype} {weight.shape}".encode())
        digest.update(_view_bytes(whole(weight)))
    return {
        "weights": digest.hexdigest(),
        "config": model.config.to_dict(),
        "rescale": model.rescale,
        "stage": stage,
        "dtype": model.dtype_policy.name,
        "output_dtype": output_dtype,
        "backend": keras.backend.backend(),
    }


def _steps(
    model: VisionTransformer,
    stages: Sequence[str],
    batches: Iterator[Batch],
    size: int,
    output_dtype: str,
    as_rows: Callable[[Any], np.ndarray],
) -> Iterator[np.ndarray]:
    """Yields structured arrays of `values` and, if the data have them, `labels`."""
    for output, labels in predict(model, stages, batches, size):
        fields = {"values": finite(np.concatenate([*output.values()], axis=-1), output_dtype)}
        if labels is not None:
            fields["labels"] = as_rows(labels)
        kinds = [(name, each.dtype.str, each.shape[1:]) for name, each in fields.items()]
        rows = np.empty(len(fields["values"]), kinds)
        for name, each in fields.items():
            rows[name] = each
        yield rows


def finite(values: np.ndarray, output_dtype: str) -> np.ndarray:
    """Returns features in a data type.

    Raises:
        ConfigError: a value is not finite in this type.
    """
    with np.errstate(over="ignore"):
        features = values.astype(output_dtype, copy=False)
    if not np.isfinite(features).all():
        raise ConfigError(
            "The features of an image are not finite: a weight or pixel is not finite, or too "
            f"large for the dtype policy of the model, such as float16, or for {output_dtype=!s}."
        )
    return features


def _describe(model: Any, data: Any, first: Batch, prepared: bool) -> dict[str, Any]:
    """Returns facts that identify the data: hashes of arrays, cheap facts about other data."""
    found, preprocessor = split_images(data), model.preprocessor
    images, labels = first if found is None else found
    identity: dict[str, Any] = {}
    if found is not None and not prepared:
        identity["protocol"] = preprocessor.protocol
        identity["pixel_range"] = preprocessor.pixel_range
        identity["draft"] = preprocessor.draft
    if hasattr(images, "shape"):
        identity["images"] = _hash_array(images)
    else:
        identity["images"] = _hash_images(model, images)
    identity |= {
        "labels": None if labels is None else _hash_array(_choose_label_reader(data)(labels)),
        "batch_size": len(first.images),
    }
    all_labels, paths = getattr(data, "labels", None), getattr(data, "paths", None)
    kept = getattr(data, "_decoded", None)  # files may have changed since they were decoded
    if isinstance(data, keras.utils.PyDataset):
        identity["last"] = _hash_array(data[len(data) - 1][0])
    if isinstance(data, keras.utils.PyDataset) or paths is not None:
        identity |= {
            "batches": len(data),
            "all_labels": None if all_labels is None else _hash_array(all_labels),
            "files": None if paths is None or kept else hash_files(paths),
            "pixels": _hash_decoded(kept or ()),
        }
    return identity


def _hash_array(array: Any) -> str:
    """Returns the sha256 of an array's type, shape and bytes."""
    values = as_array(array)
    digest = hashlib.sha256(f"{values.dtype.str} {values.shape}".encode())
    digest.update(_view_bytes(values))
    return digest.hexdigest()


def _hash_decoded(images: Sequence[Any]) -> str:
    hashes = (_hash_array(read_pixels(image)) for image in images)
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def _view_bytes(values: np.ndarray) -> Any:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _hash_images(model: VisionTransformer, images: Any) -> str:
    """Returns a hash of the files, or of the pixels, of images as for `model.preprocessor`."""
    digest = hashlib.sha256()
    for image in images_in(images, model.config.channels):
        if isinstance(image.source, (str, os.PathLike)):
            digest.update(hash_files([image.source]).encode())
        else:
            pixels = read_pixels(model.preprocessor.decode(image.source))
            digest.update(_hash_array(pixels).encode())
    return digest.hexdigest()[:16]


def hash_files(paths: Sequence[Any]) -> str:
    """Returns one sha256 of the names, sizes and modification times of all files."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            state = Path(path).stat()
            facts = (state.st_size, state.st_mtime_ns)
        except OSError:
            facts = (-1, -1)
        digest.update(f"{os.fspath(path)!r} {facts}\n".encode())
    return digest.hexdigest()
