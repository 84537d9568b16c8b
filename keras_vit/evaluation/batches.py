"""Batches of images, with or without labels, from any container; a model's outputs for them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.data import ImageData
from keras_vit.errors import ConfigError
from keras_vit.images.inputs import as_array
from keras_vit.images.preprocessor import read_ahead
from keras_vit.models.config.rules import COUNT
from keras_vit.models.inference import run


class Batch(NamedTuple):
    """Images in the form that the data gave, and their labels or None."""

    images: Any
    labels: Any


def read_batches(data: Any, batch_size: int = 32, start: int = 0) -> Iterator[Batch]:
    """Yields the batches of `data` in order; a thread reads the next batch meanwhile.

    Args:
        data: a `keras.utils.PyDataset`; a `keras_vit.data.ImageData`, without the copies that fill
            up a batch; a tuple of arrays `(images, labels)`, or images alone; or any iterable whose
            batches are such a pair or an array: a `tf.data.Dataset`, a torch DataLoader, a
            generator.
        batch_size: images per batch of arrays; other data have their own batches.
        start: number of batches to skip. A `PyDataset` and arrays need not read them.

    Raises:
        ConfigError: data of another kind, or different numbers of images and labels.
    """
    COUNT.check("batch_size", batch_size)
    yield from read_ahead(map(_pair, _read(data, batch_size, start)))


def predict(
    model: Any, stages: Sequence[str], batches: Iterable[Batch], size: int = 0
) -> Iterator[tuple[dict[str, np.ndarray], Any]]:
    """Yields stages of the model for each batch, `{stage: float32 array}`, and the batch's labels.

    Args:
        model: a `VisionTransformer`.
        stages: names of stages, see `keras_vit.models.graph.Stages`.
        batches: the batches.
        size: number of images of a full batch, if it is known.

    Raises:
        ConfigError: the images are not of the model's shape, or integers that
            `model.preprocessor` has not scaled; or the outputs of two batches differ in shape,
            such as the tokens of images of different sizes.
    """
    shapes = None
    for images, labels in batches:
        array = as_array(images)
        model._check_images(array)
        if not model.config.rescale and array.dtype.kind != "f":
            raise ConfigError(
                f"The model takes float images, found {array.dtype}. model.preprocessor brings "
                "pixels in [0, 255] to the range that it was trained on."
            )
        size = max(size, len(array))
        outputs = run(model, array.astype("float32", copy=False), list(stages), size)
        found = {stage: values.shape[1:] for stage, values in outputs.items()}
        shapes = shapes or found
        if found != shapes:
            raise ConfigError(
                f"The outputs have different shapes: {shapes} for one image size, for another "
                f"{found}. Choose a pooling, or one size."
            )
        yield outputs, labels


def _read(data: Any, batch_size: int, start: int) -> Iterator[Any]:
    if isinstance(data, keras.utils.PyDataset):
        batches = (data[k] for k in range(start, len(data)))
        return map(_without_copies, batches) if isinstance(data, ImageData) else batches
    if isinstance(data, tuple) and len(data) == 2 and data[1] is None:
        data = data[0]
    if _is_images(data):
        data = (data,)
    if isinstance(data, tuple) and data and _is_images(data[0]):
        if len(data) > 2:
            raise ConfigError(f"Expected (images, labels), found a tuple of {len(data)}.")
        if len(data[-1]) != len(data[0]):
            raise ConfigError(f"{len(data[0])} images and {len(data[1])} labels: expected as many.")
        first = range(start * batch_size, len(data[0]), batch_size)
        return ([array[k : k + batch_size] for array in data] for k in first)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        return itertools.islice(iter(data), start, None)
    raise ConfigError(
        f"Expected (images, labels), a PyDataset or an iterable of batches, found "
        f"{type(data).__name__}."
    )


def _without_copies(batch: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    images, labels, *weights = batch
    return (images[weights[0] > 0], labels[weights[0] > 0]) if weights else batch


def _pair(batch: Any) -> Batch:
    parts = (batch,) if _is_images(batch) else batch
    if not isinstance(parts, (tuple, list)) or len(parts) not in (1, 2) or not _is_images(parts[0]):
        shape = getattr(batch, "shape", None)
        size = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
        kind = type(batch).__name__ + size if shape is None else f"shape {tuple(shape)}"
        raise ConfigError(
            "A batch is a pair (images, labels), or images alone, with images "
            f"(batch, height, width, channels); found {kind}."
        )
    if len(parts[0]) != len(parts[-1]):
        raise ConfigError(f"A batch of {len(parts[0])} images and {len(parts[1])} labels.")
    return Batch(parts[0], parts[1] if len(parts) == 2 else None)


def _is_images(value: Any) -> bool:
    return len(getattr(value, "shape", ())) >= 3  # packed patches have three axes


def count_images(data: Any) -> int | None:
    """Returns the number of images of data, or None if only reading them would tell."""
    images = data[0] if isinstance(data, tuple) and data else data
    shape = getattr(images, "shape", None)
    count = getattr(data, "num_images", shape[0] if shape else None)
    return count if isinstance(count, int) else None
