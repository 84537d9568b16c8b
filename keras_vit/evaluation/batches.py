"""Reads batches of images, with or without labels, from any container, and predicts them."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, NamedTuple

import keras
import numpy as np
from PIL import Image

from keras_vit.config.rules import COUNT
from keras_vit.data import ImageData
from keras_vit.errors import ConfigError
from keras_vit.images.inputs import as_array, refuse_torch_dataset
from keras_vit.images.preprocessor import read_ahead
from keras_vit.models.image_checks import refuse_prepared
from keras_vit.models.inference import run

_SINGLE = (str, os.PathLike, bytes, Image.Image)
"""Types of one image in the user's form; arrays are recognised by their axes and type."""


class Batch(NamedTuple):
    """Images in the form that the data gave, and their labels or None."""

    images: Any
    labels: Any


def read_batches(
    model: Any, data: Any, batch_size: int = 32, prepared: bool = False, start: int = 0
) -> Iterator[Batch]:
    """Yields prepared batches of `data` in order; a thread reads the next batch meanwhile.

    Args:
        model: a `VisionTransformer`, whose preprocessor prepares images.
        data: images as for `model.preprocessor`, or a pair of images and labels; or a data set of
            prepared batches: a `keras.utils.PyDataset`; a `keras_vit.data.ImageData`, without the
            copies that fill up a batch; or any iterable whose batches are arrays or such pairs: a
            `tf.data.Dataset`, a torch DataLoader, a generator.
        batch_size: images per batch; a data set has its own batches.
        prepared: whether the images are an array that `model.preprocessor` has prepared.
        start: number of batches to skip. A `PyDataset` and arrays need not read them.

    Raises:
        ConfigError: the data are of another kind, there are more or fewer labels than images, an
            image cannot be read, or an array may be prepared already although `prepared` is False.
    """
    COUNT.check("batch_size", batch_size)
    found = split_images(data)
    if found is None:
        batches = _read(data, start)
    elif prepared:
        if not hasattr(found[0], "shape"):
            raise ConfigError(
                f"prepared=True needs an array that model.preprocessor has prepared, found "
                f"{type(found[0]).__name__}."
            )
        parts = [part for part in found if part is not None]
        first = range(start * batch_size, len(found[0]), batch_size)
        batches = ([part[k : k + batch_size] for part in parts] for k in first)
    else:
        refuse_prepared(model, found[0])
        batches = itertools.islice(_prepare(model, *found, batch_size), start, None)
    yield from read_ahead(map(_pair, batches))


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
        ConfigError: the images do not have the model's shape, or are integers that
            `model.preprocessor` has not scaled; or the outputs of two batches differ in shape,
            such as the tokens of images of different sizes.
    """
    shapes = None
    for images, labels in batches:
        array = as_array(images)
        model._check_images(array)
        if not model.rescale and array.dtype.kind != "f":
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
                f"The outputs have different shapes for different image sizes: {shapes} and "
                f"{found}. Choose a pooling, or one image size."
            )
        yield outputs, labels


def split_images(data: Any) -> tuple[Any, Any] | None:
    """Returns images in the user's form and their labels or None; None for a data set.

    Raises:
        ConfigError: the data are a tuple of more than images and labels, the labels have no length,
            or there are more or fewer labels than images.
    """
    if _are_images(data):
        return data, None
    if not (isinstance(data, tuple) and data and _are_images(data[0])):
        return None
    if len(data) > 2:
        raise ConfigError(f"Expected (images, labels), found a tuple of {len(data)}.")
    images, labels = (*data, None)[:2]
    if labels is None:
        return images, None
    if not isinstance(labels, Sized):
        raise ConfigError(f"Labels are {type(labels).__name__}, expected one per image.")
    if isinstance(images, Sized) and not isinstance(images, _SINGLE):
        _check_numbers(len(images), len(labels))
    return images, labels


def _are_images(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(each, _SINGLE) or _is_photo(each) for each in value)
    return isinstance(value, _SINGLE) or _is_batch(value)


def _is_photo(value: Any) -> bool:
    """Whether a value is an image of integers; prepared batches have floats."""
    return isinstance(value, np.ndarray) and value.ndim == 3 and value.dtype.kind in "ui"


def _check_numbers(images: int, labels: int) -> None:
    if images != labels:
        raise ConfigError(f"{images} images and {labels} labels: expected one label per image.")


def _prepare(model: Any, images: Any, labels: Any, batch_size: int) -> Iterator[tuple[Any, Any]]:
    """Yields prepared batches of images in the user's form, and their labels or None."""
    count = 0
    for _, batch in model.preprocessor.batches(images, batch_size):
        first, count = count, count + len(batch)
        yield batch, None if labels is None else labels[first:count]
    if labels is not None:
        _check_numbers(count, len(labels))


def _read(data: Any, start: int) -> Iterator[Any]:
    if isinstance(data, keras.utils.PyDataset):
        batches = (data[k] for k in range(start, len(data)))
        return map(_without_copies, batches) if isinstance(data, ImageData) else batches
    if isinstance(data, Iterable) and not isinstance(data, dict):
        return itertools.islice(iter(data), start, None)
    refuse_torch_dataset(data)
    raise ConfigError(
        f"Expected images, (images, labels), a PyDataset or an iterable of batches, found "
        f"{type(data).__name__}."
    )


def _without_copies(batch: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    images, labels, *weights = batch
    return (images[weights[0] > 0], labels[weights[0] > 0]) if weights else batch


def _pair(batch: Any) -> Batch:
    parts = (batch,) if _is_batch(batch) else batch
    if isinstance(parts, (tuple, list)) and len(parts) == 2 and parts[1] is None:
        parts = parts[:1]
    if not isinstance(parts, (tuple, list)) or len(parts) not in (1, 2) or not _is_batch(parts[0]):
        shape = getattr(batch, "shape", None)
        size = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
        kind = type(batch).__name__ + size if shape is None else f"shape {tuple(shape)}"
        raise ConfigError(
            "A batch is a pair (images, labels), or only images, with images "
            f"(batch, height, width, channels); found {kind}."
        )
    if not isinstance(parts[-1], Sized) or not len(getattr(parts[-1], "shape", (1,))):
        raise ConfigError(
            "A batch has one label per image, found a single label: divide the data into batches, "
            "such as dataset.batch(32)."
        )
    if len(parts[0]) != len(parts[-1]):
        raise ConfigError(f"A batch of {len(parts[0])} images and {len(parts[1])} labels.")
    return Batch(parts[0], parts[1] if len(parts) == 2 else None)


def _is_batch(value: Any) -> bool:
    return len(getattr(value, "shape", ())) >= 3  # packed patches have three axes


def count_images(data: Any) -> int | None:
    """Returns the number of images of data; None if it is unknown before they are read."""
    found = split_images(data)
    if found is None:
        count = getattr(data, "num_images", None)
        return count if isinstance(count, int) else None
    return None if isinstance(found[0], _SINGLE) else len(found[0])
