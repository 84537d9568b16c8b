"""Images, with or without labels, from any container, as batches that a model takes."""

import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.inference import run


class Batch(NamedTuple):
    """Images in the form that the data gave, and their labels or None."""

    images: Any
    labels: Any


def batches_of(data: Any, batch_size: int = 32, start: int = 0) -> Iterator[Batch]:
    """Yields the batches of `data` in order; a thread reads the next batch meanwhile.

    Args:
        data: a `keras.utils.PyDataset`, such as `keras_vit.data.ImageData`; a tuple of arrays
            `(images, labels)`, or images alone; or any iterable whose batches are such a pair
            or an array: a `tf.data.Dataset`, a torch DataLoader, a generator.
        batch_size: images per batch of arrays; other data have their own batches.
        start: number of batches to skip. A `PyDataset` and arrays need not read them.

    Raises:
        ConfigError: data of another kind, or different numbers of images and labels.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size}, expected at least 1.")
    return _one_ahead(map(_pair, _raw(data, batch_size, start)))


def as_images(images: Any, model: keras.Model) -> np.ndarray:
    """Returns a batch as float32, after a check of its shape and type against the model.

    Raises:
        ConfigError: the shape is not the model's, or the images are integers: pixels that
            `model.preprocessor` has not scaled.
    """
    array = as_numpy(images)
    expected = model.input_shape[1:]
    shown = "(batch, {})".format(", ".join("any" if n is None else str(n) for n in expected))
    fits = array.ndim == len(expected) + 1 and all(
        want in (None, have) for want, have in zip(expected, array.shape[1:], strict=True)
    )
    if not fits:
        raise ConfigError(
            f"The model takes images {shown}, found {array.shape}. model.preprocessor makes "
            "such a batch of files, PIL images or pixels."
        )
    rescales = any(layer.name == "rescale" for layer in model.layers)
    if not rescales and array.dtype.kind not in "fV":  # NumPy calls bfloat16 a void
        raise ConfigError(
            f"The model takes float images {shown}, found {array.dtype}. model.preprocessor "
            "brings pixels in [0, 255] to the range that it was trained on."
        )
    return array.astype("float32", copy=False)


def predicted(
    model: Any, stage: str, batches: Iterable[Batch], size: int = 0
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yields a stage of the model for each batch, float32, and the batch's labels.

    Args:
        model: a `VisionTransformer`.
        stage: name of `keras_vit.graph.Stages`.
        batches: the batches.
        size: number of images of a full batch, if it is known.

    Raises:
        ConfigError: as `as_images`; or the outputs of two batches differ in shape, such as
            the tokens of images of different sizes.
    """
    shape = None
    for images, labels in batches:
        array = as_images(images, model)
        size = max(size, len(array))
        output = run(model, array, [stage], size)[stage]
        shape = shape or output.shape[1:]
        if output.shape[1:] != shape:
            raise ConfigError(
                f"Images of different sizes: one has an output {shape}, another "
                f"{output.shape[1:]}. Choose a layer behind the pooling, or one size."
            )
        yield output, labels


def as_numpy(value: Any) -> np.ndarray:
    """Returns a tensor of any library, or a list, as an array."""
    if isinstance(value, (np.ndarray, list, tuple)):
        return np.asarray(value)
    return keras.ops.convert_to_numpy(value)


def _raw(data: Any, batch_size: int, start: int) -> Iterator[Any]:
    if isinstance(data, keras.utils.PyDataset):
        return (data[k] for k in range(start, len(data)))
    if _is_images(data):
        return _slices(data, None, batch_size, start)
    if isinstance(data, tuple) and data and _is_images(data[0]):
        if len(data) != 2:
            raise ConfigError(f"Expected (images, labels), found a tuple of {len(data)}.")
        return _slices(*data, batch_size, start)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        return itertools.islice(iter(data), start, None)
    raise ConfigError(
        f"Expected (images, labels), a PyDataset or an iterable of batches, found "
        f"{type(data).__name__}."
    )


def _slices(images: Any, labels: Any, batch_size: int, start: int) -> Iterator[Any]:
    if labels is not None and len(labels) != len(images):
        raise ConfigError(f"{len(images)} images and {len(labels)} labels: expected as many.")
    for k in range(start * batch_size, len(images), batch_size):
        part = slice(k, k + batch_size)
        yield images[part] if labels is None else (images[part], labels[part])


def _pair(batch: Any) -> Batch:
    if _is_images(batch):
        return Batch(batch, None)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise ConfigError(
            "A batch is a pair (images, labels), or images alone, with images "
            f"(batch, height, width, channels); found {_described(batch)}."
        )
    images, labels = batch
    if len(images) != len(labels):
        raise ConfigError(f"A batch of {len(images)} images and {len(labels)} labels.")
    return Batch(images, labels)


def _is_images(value: Any) -> bool:
    return len(getattr(value, "shape", ())) >= 4


def _described(batch: Any) -> str:
    if isinstance(batch, (tuple, list)):
        return f"a {type(batch).__name__} of {len(batch)}"
    shape = getattr(batch, "shape", None)
    return type(batch).__name__ if shape is None else f"shape {tuple(shape)}"


def _one_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    with ThreadPoolExecutor(1, "keras_vit-data") as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch
