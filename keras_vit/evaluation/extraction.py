"""Frozen features: the outputs of any layer for a data set, optionally cached on disk."""

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.distribution.processes import from_the_first, together, whole
from keras_vit.errors import ConfigError
from keras_vit.evaluation.batches import Batch, as_numpy, batches_of, predicted
from keras_vit.evaluation.rows import Rows, rows_of_all
from keras_vit.evaluation.targets import class_indices
from keras_vit.model import VisionTransformer


class Features(NamedTuple):
    """Features and labels of a data set.

    Args:
        values: float32 `(images, width)`, or `(images, tokens, hidden_size)` for a layer
            of tokens; a memory map of the file with `cache`.
        labels: int32 `(images,)`, or None if the data have no labels.
    """

    values: np.ndarray
    labels: np.ndarray | None


def features(
    model: VisionTransformer,
    data: Any,
    layer: str = "pre_logits",
    *,
    batch_size: int = 32,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Features:
    """Returns the output of a layer of the frozen model for every image.

    Args:
        model: a `VisionTransformer`.
        data: data as for `keras_vit.evaluate`; labels are optional, and need not be the
            model's classes.
        layer: name of a layer, see `VisionTransformer`; `"pre_logits"` is the input of the
            head, the representation of section 4.1.
        batch_size: images per step if `data` is arrays.
        cache: a folder that keeps the features, which may be larger than memory: the features
            of these data, weights and layer are computed once, and an interrupted run
            continues. Arrays are identified by all of their bytes; a `PyDataset` by its length,
            its `labels` and `paths` if it has them, and its first and last batch; other data by
            their first batch alone.
        progress: called with the number of images after each batch.

    Raises:
        ConfigError: the model has no such layer, the data are empty, or the images do not fit
            the model.

    >>> import numpy as np, keras_vit
    >>> model = keras_vit.VisionTransformer.from_preset("vit_digits")
    >>> keras_vit.features(model, model.preprocessor(np.zeros((3, 8, 8), "uint8"))).values.shape
    (3, 64)
    """
    model.check_stages([layer])
    stream = batches_of(data, batch_size)
    first = next(stream, None)
    if first is None:
        raise ConfigError("The data are empty: no batch came.")
    if cache is None:
        chunks = _chunks(
            model, layer, itertools.chain([first], stream), len(first.images), progress
        )
        kept = np.concatenate(list(chunks))
    else:
        task = {**identity_of(model, layer), "data": _data_identity(data, first)}
        digest = hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()
        path = Path(cache) / f"{layer}-{digest[:16]}.npy"
        exists = path.exists()
        if not (exists if together()[1] == 1 else from_the_first(exists)):
            stream = itertools.chain([first], stream)
            _keep(path, task, model, data, batch_size, len(first.images), stream, progress)
        kept = np.load(path, mmap_mode="r")
    labelled = "labels" in (kept.dtype.names or ())
    return Features(kept["values"], kept["labels"] if labelled else None)


def identity_of(model: VisionTransformer, layer: str) -> dict[str, Any]:
    """Returns everything that determines the features of an image, as plain JSON types."""
    digest = hashlib.sha256()
    for weight in model.weights:
        digest.update(f"{weight.name} {weight.dtype} {weight.shape}".encode())
        digest.update(_bytes_of(whole(weight)))
    return {
        "weights": digest.hexdigest(),
        "config": model.config.to_dict(),
        "layer": layer,
        "dtype": model.dtype_policy.name,
        "backend": keras.backend.backend(),
    }


def _chunks(
    model: VisionTransformer,
    layer: str,
    batches: Iterator[Batch],
    size: int,
    progress: Callable[[int], None] | None,
) -> Iterator[np.ndarray]:
    """Yields structured arrays of `values` and, if the data have them, `labels`."""
    for values, labels in predicted(model, layer, batches, size):
        fields: list[Any] = [("values", "<f4", values.shape[1:])]
        if labels is not None:
            fields.append(("labels", "<i4"))
        chunk = np.empty(len(values), fields)
        chunk["values"] = values
        if labels is not None:
            chunk["labels"] = class_indices(labels)
        if progress is not None:
            progress(len(chunk))
        yield chunk


def _keep(
    path: Path,
    task: dict[str, Any],
    model: VisionTransformer,
    data: Any,
    batch_size: int,
    size: int,
    stream: Iterator[Batch],
    progress: Callable[[int], None] | None,
) -> None:
    with rows_of_all(path, task) as rows:
        if hasattr(data, "__next__"):  # a generator cannot be restarted: skip its first batches
            stream = itertools.islice(stream, rows.done, None)
        elif rows.done:
            stream = batches_of(data, batch_size, start=rows.done)
        if progress is not None and rows.count:
            progress(rows.count)
        for chunk in _chunks(model, task["layer"], stream, size, progress):
            rows.append(chunk, inputs=1)
        if isinstance(rows, Rows):
            rows.finish().replace(path)
            rows.clear()


def _data_identity(data: Any, first: Batch) -> dict[str, Any]:
    """Returns the identity of the data: all bytes of arrays, cheap facts of other data."""
    images, labels = first
    if isinstance(data, tuple):
        images, labels = data
    elif hasattr(data, "shape"):
        images = data
    identity = {
        "images": digest_of(images),
        "labels": None if labels is None else digest_of(class_indices(labels)),
        "batch_size": len(first.images),
    }
    if isinstance(data, keras.utils.PyDataset):
        all_labels, paths = getattr(data, "labels", None), getattr(data, "paths", None)
        identity |= {
            "batches": len(data),
            "last": digest_of(data[len(data) - 1][0]),
            "all_labels": None if all_labels is None else digest_of(all_labels),
            "files": None if paths is None else files_digest(paths),
        }
    return identity


def digest_of(array: Any) -> str:
    """Returns the sha256 of an array's type, shape and bytes."""
    values = as_numpy(array)
    digest = hashlib.sha256(f"{values.dtype.str} {values.shape}".encode())
    digest.update(_bytes_of(values))
    return digest.hexdigest()


def _bytes_of(values: np.ndarray) -> Any:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def files_digest(paths: Sequence[Any]) -> str:
    """Returns the sha256 of the files' names, sizes and times of change."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            found = Path(path).stat()
            facts = (found.st_size, found.st_mtime_ns)
        except OSError:
            facts = (-1, -1)
        digest.update(f"{os.fspath(path)!r} {facts}\n".encode())
    return digest.hexdigest()
