"""Checks shape and pixel range of a model's images.

A wrong shape is refused with the fix in the message. Pixels in another range than the model's cause
one warning per model. The range is read from the first array that `fit`, `evaluate`, `predict`
or a call gets, and on torch also from the first batch of a data set; integers are recognized by
their dtype in every call. A traced tensor has no values, so it is not checked.
"""

from typing import Any

import keras
import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.images.inputs import as_array, refuse_torch_dataset
from keras_vit.images.preprocessor import Preprocessor
from keras_vit.models.stems import image_shape
from keras_vit.support.text import warn

if keras.backend.backend() == "torch":
    import torch
elif keras.backend.backend() == "jax":
    import jax
elif keras.backend.backend() == "tensorflow":
    import tensorflow as tf

_CHECKED_IMAGES = 8
_LARGEST_PREPARED = 3
"""Above the largest prepared value: white is 2.64 with ImageNet's mean and standard deviation."""
_ALMOST_BLACK = 0.02
"""Photographs in [0, 1] have pixels below this; prepared images without dark pixels rarely do."""


class ImageChecks:
    """Checks the images of one model.

    Args:
        config: configuration of the model.
        preprocessor: preparation of images for the model.
    """

    def __init__(self, config: ViTConfig, preprocessor: Preprocessor) -> None:
        self._config = config
        self._data_format = preprocessor.data_format
        self._rescales = not preprocessor.scaled
        ends = preprocessor.scale(np.array([[0], [255]]))
        self._black, self._white = float(ends.min()), float(ends.max())
        self._has_seen_pixels = False
        self._has_warned = False

    def check(self, inputs: Any) -> Any:
        """Refuses images with a wrong shape, and warns once about pixels in another range.

        The range is read from the first images that are not blank; integers are recognized in every
        call. A data set, which `fit` may get, has no shape; its batches are checked when the model
        is called.

        Returns:
            The inputs. If TensorFlow traces images of a partly unknown shape, the graph checks the
            rest at run time: Keras's `predict` traces a second shape as an unknown one.

        Raises:
            ConfigError: the shape does not fit the model, and the message names the fix; the images
                are smaller than a patch; or the inputs are a torch Dataset or several arrays.
        """
        images = _only(inputs)
        shape = getattr(images, "shape", None)
        if shape is None:
            refuse_torch_dataset(images)
            return inputs
        if getattr(shape, "rank", 0) is not None:
            self._check_shape(shape)
            if not self._has_warned and (not self._has_seen_pixels or _are_integers(images)):
                self._look_at(images)
        if keras.backend.backend() == "tensorflow" and isinstance(images, tf.Tensor):
            expected = (None, *image_shape(self._config, self._data_format), 1)[: shape.rank or -1]
            if not shape.is_subtype_of(tf.TensorShape(expected)):
                return tf.ensure_shape(images, expected)
        return inputs

    def _check_shape(self, shape: Any) -> None:
        config, shape = self._config, tuple(shape)
        reason = refusal(shape, config, self._data_format)
        if reason is not None:
            raise ConfigError(reason)
        size = shape[1:3] if self._data_format == "channels_last" else shape[2:4]
        is_open = config.image_size is None and not config.stem.is_packed
        if is_open and all(type(side) is int for side in size):  # exporters use symbols
            config.compute_grid(size)

    def _look_at(self, images: Any) -> None:
        if _are_integers(images):
            found = "integers" if self._white < 128 else ""
        else:
            pixels = _read_first(images)
            if pixels is None:
                return
            if self._config.stem.is_packed:
                pixels = pixels[..., :-2][pixels[..., -1] >= 0]  # without padding
            low, high = float(pixels.min(initial=256)), float(pixels.max(initial=-256))
            self._has_seen_pixels = low < high
            found = self._doubt(low, high)
        if found:
            self._has_warned = True
            warn(
                f"The images have {found}; this model takes values in [{self._black:.3g}, "
                f"{self._white:.3g}]. Prepare them with model.preprocessor, or build or load the "
                "model with rescale=True for pixels in [0, 255]."
            )

    def _doubt(self, low: float, high: float) -> str:
        """Describes the values if they are certainly in another range; else returns ""."""
        if self._rescales and low < 0:
            return f"values down to {low:g}"
        takes_other_floats = self._black < -0.25 or self._white > 128
        if takes_other_floats and 0 <= low <= _ALMOST_BLACK and 0.5 <= high <= 1:
            return "floats in [0, 1]"
        if low >= 0 and max(_LARGEST_PREPARED, 2 * self._white) < high <= 255.5:
            return f"pixels up to {high:g}"
        return ""


def prepare(model: Any, images: Any, prepared: bool) -> Any:
    """Prepares images as a batch for a model, unless they are already prepared.

    Args:
        model: a `VisionTransformer`.
        images: images as for `model.preprocessor`, or a batch that it has prepared.
        prepared: whether `images` is such a batch, which is returned unchanged.

    Raises:
        ConfigError: an image cannot be read; or `prepared` is False and the array could be a
            prepared batch: it has the model's shape, and floats that cannot be pixels, because some
            are negative or the largest is between 1 and 3.
    """
    if prepared:
        return images
    refuse_prepared(model, images)
    return model.preprocessor(images)


def refuse_prepared(model: Any, images: Any) -> None:
    """Refuses an array that could be a prepared batch where images are expected.

    Raises:
        ConfigError: as `prepare`.
    """
    shape = tuple(getattr(images, "shape", ()))
    is_float = bool(shape) and "float" in str(images.dtype)
    if is_float and refusal(shape, model.config, model.data_format) is None:
        values = as_array(images)
        low, high = float(np.min(values, initial=0)), float(np.max(values, initial=0))
        if low < 0 or 1 < high <= _LARGEST_PREPARED:
            raise ConfigError(
                f"images {shape} has floats from {low:g} to {high:g}. Is it a prepared batch? Pass "
                "prepared=True for a batch of model.preprocessor, or pixels: floats in [0, 1], or "
                "integers."
            )


def refusal(shape: tuple[int | None, ...], config: ViTConfig, data_format: str) -> str | None:
    """Explains why a model refuses images of a shape, with a remedy; None if the shape fits.

    Args:
        shape: shape of the images, with None for an unknown size.
        config: configuration of the model.
        data_format: data format of the model.
    """
    expected = image_shape(config, data_format)
    if config.stem.is_packed:
        return _explain_packed(shape, expected)
    last = data_format == "channels_last"
    if len(shape) == 3 and config.channels == 1 and last:
        shape = (*shape, 1)  # Keras adds the channel axis
    if len(shape) == 5 and shape[-1] == 1:
        shape = shape[:-1]
    sides = shape[1:]
    if len(shape) == 4 and all(
        None in (a, b) or a == b for a, b in zip(sides, expected, strict=True)
    ):
        return None
    shapes = f"The model takes images {_shown((None, *expected))}, found {_shown(shape)}."
    if len(shape) != 4:
        hint = " One image is a batch of one: images[None]." if len(shape) == 3 else ""
        return shapes + hint
    channels = sides[-1 if last else 0]
    if config.channels not in (channels, None) and sides[0 if last else -1] == config.channels:
        other, move = ("channels_first", "1, -1") if last else ("channels_last", "-1, 1")
        return (
            f"{shapes} Their axes are {other}: use np.moveaxis(images, {move}), or build or load "
            f"the model with data_format={other!r}."
        )
    if channels not in (None, config.channels):
        return (
            f"{shapes} They have {channels} channels: model.preprocessor(images) converts grey or "
            f"transparent images to {config.channels}; channels= builds a model for other numbers."
        )
    size = sides[:2] if last else sides[1:]
    return (
        f"{shapes} model.preprocessor(images) resizes images; from_preset(..., image_size={size}) "
        "loads the weights for that size."
    )


def _explain_packed(shape: tuple[int | None, ...], expected: tuple[int | None, ...]) -> str | None:
    if len(shape) == 3 and all(a in (None, b) for a, b in zip(shape[1:], expected, strict=True)):
        return None
    return (
        f"The model takes packed patches {_shown((None, *expected))}, found {_shown(shape)}. "
        "model.preprocessor packs images of any shape, and its pack() another library's patches; "
        "from_preset(..., stem={'kind': 'none'}) loads the weights for images of one size."
    )


def _read_first(images: Any) -> np.ndarray | None:
    """Returns the first images as float32, or None for a tensor without values."""
    if not _has_values(images):
        return None
    try:
        return np.asarray(keras.ops.convert_to_numpy(images[:_CHECKED_IMAGES]), "float32")
    except (RuntimeError, TypeError, ValueError):  # without storage, or wrapped by torch.func
        return None


def _are_integers(images: Any) -> bool:
    return "int" in str(images.dtype)


def _has_values(images: Any) -> bool:
    """Whether a tensor has values on this host, unlike a traced or exported tensor."""
    backend = keras.backend.backend()
    if isinstance(images, (np.ndarray, keras.KerasTensor)):
        return isinstance(images, np.ndarray)
    if backend == "torch":
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
        return type(images) is torch.Tensor and not is_traced
    if backend == "jax":
        is_traced = isinstance(images, jax.core.Tracer)
        return isinstance(images, jax.Array) and not is_traced and images.is_fully_addressable
    return hasattr(images, "numpy")


def _only(inputs: Any) -> Any:
    """Returns the only tensor in a functional model's inputs: a tensor, or a list or dict of one.

    Raises:
        ConfigError: a list has several arrays, or a dict lacks the key of the input, "images".
    """
    if isinstance(inputs, dict) and "images" in inputs:
        return inputs["images"]
    if isinstance(inputs, (list, tuple)) and len(inputs) == 1:
        return inputs[0]
    if isinstance(inputs, (list, tuple, dict)):
        raise ConfigError(
            f"The model takes one array of images, found a {type(inputs).__name__} of "
            f"{len(inputs)}. Use np.stack(images) to make a batch of single images; a dict must "
            'have the key "images" only.'
        )
    return inputs


def _shown(shape: tuple[int | None, ...]) -> str:
    sides = ("any" if side is None else str(side) for side in shape[1:])
    return f"(batch, {', '.join(sides)})"
