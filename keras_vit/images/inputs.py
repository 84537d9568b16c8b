"""Interprets a user's images: splits objects of many kinds into single images.

`docs/preprocessing.md` states the rules in three tables, for the kind of an object, the axes of an
array, and its values; tests/images/test_inputs.py tests each row.
"""

import contextlib
import dataclasses
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from keras_vit.errors import ConfigError
from keras_vit.images.decoding import Range, likely_range, to_8_bits
from keras_vit.support.text import warn

Item = Any
"""One image in the user's form: a name, bytes, a file object, a Pillow image or an array."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pixels:
    """One image in an array.

    Args:
        values: the pixels, `(height, width, channels)`.
        of: the images of the user's array, which decide the value of full brightness.
    """

    values: np.ndarray
    of: "PixelImages"


class UserImage(NamedTuple):
    """An image in the user's form, and the source to decode, or the error if it is not an image."""

    item: Item
    source: Any  # a name, encoded bytes, a file object, a Pillow image, `Pixels` or a ConfigError


def images_in(value: Any, channels: int) -> Iterator[UserImage]:
    """Yields the images of a user's object, one at a time, in order.

    An object that is not an image is yielded with a `ConfigError` as its source, so that a caller
    may continue with the next one.

    Args:
        value: any object; an iterator is read on demand.
        channels: number of channels of the model, which identifies the channel axis of an array.
    """
    images = next(images for is_such, images in _KINDS if is_such(value))
    yield from images(value, channels)


class PixelImages(Sequence[Pixels]):
    """The images of an array or tensor, whose axes and range are recognised.

    Args:
        array: one image or a batch.
        channels: number of channels of the model.

    Raises:
        ConfigError: the axes are ambiguous, or do not fit images.
    """

    def __init__(self, array: Any, channels: int) -> None:
        self._images = _images_first(as_array(array), channels)

    @functools.cached_property
    def white(self) -> int:
        """The value of full brightness, 1 or 255."""
        return _white(self._images)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: Any) -> Any:
        return Pixels(self._images[index], self)


def as_array(value: Any) -> np.ndarray:
    """Returns a tensor of any backend and device as a NumPy array.

    Raises:
        ConfigError: NumPy cannot read its values, as with a symbolic tensor or lists of unequal
            lengths.
    """
    try:
        if hasattr(value, "detach"):  # torch: a gradient, a device, bfloat16
            value = value.detach().cpu()
            value = value.float() if "bfloat16" in str(value.dtype) else value
        array = np.asarray(value)
        # In NumPy, bfloat16 of JAX and TensorFlow has the type of two bytes of void.
        is_foreign_float = array.dtype.kind == "V" and array.dtype.names is None
        return array.astype(np.float32) if is_foreign_float else array
    except Exception as error:  # every library raises its own types
        reason = str(error).partition("\n")[0]
        if isinstance(value, (list, tuple)):
            raise ConfigError(f"Expected an array, or lists of one length ({reason}).") from error
        raise ConfigError(
            f"NumPy cannot read the values of a {type(value).__name__} ({reason}). Convert it to "
            "an array first; inside tf.data, call the preprocessor by tf.numpy_function."
        ) from error


def refuse_torch_dataset(value: Any) -> None:
    """Refuses a `torch.utils.data.Dataset`, which has single images and no batches.

    Raises:
        ConfigError: the value is one; the message says how to read its batches.
    """
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.utils.data.Dataset):
        raise ConfigError(
            f"{type(value).__name__} is a torch Dataset of single images. Give its batches: "
            "keras_vit.data.from_grain(dataset, model) prepares the images; if they are prepared, "
            "with the axes of the model, torch.utils.data.DataLoader(dataset, batch_size=32)."
        )


def _name(value: Any, _: int) -> Iterator[UserImage]:
    name = os.fsdecode(value)
    if name.startswith("~") and not os.path.lexists(name):
        with contextlib.suppress(RuntimeError):  # no such user
            name = str(Path(name).expanduser())
    yield UserImage(value, name or ConfigError("An empty file name, expected an image file."))


def _url(value: str, _: int) -> Iterator[UserImage]:
    shown = value if len(value) < 200 else f"{value[:200]}..."
    if value.startswith("data:"):
        fix = "Give its bytes: base64.b64decode(url.partition(',')[2])."
    elif value.startswith(("http:", "https:", "ftp:")):
        fix = f"Download it first: path = keras.utils.get_file(origin={shown!r})"
    else:
        fix = "Open it with its library, such as fsspec, and pass the file object."
    yield UserImage(value, ConfigError(f"{shown}: URLs are not supported. {fix}"))


def _as_it_is(value: Any, _: int) -> Iterator[UserImage]:
    yield UserImage(value, value)


def _array(value: Any, channels: int) -> Iterator[UserImage]:
    try:
        images = PixelImages(value, channels)
    except ConfigError as error:
        yield UserImage(value, error)
        return
    is_one_image = len(images) == 1 and len(value.shape) < 4
    for pixels in images:
        yield UserImage(value if is_one_image else pixels.values, pixels)


def _list_elements(value: Any, channels: int) -> Iterator[UserImage]:
    return _elements(np.asarray(value).reshape(-1).tolist(), channels)


def _elements(value: Iterable[Any], channels: int) -> Iterator[UserImage]:
    for element in value:
        yield from images_in(element, channels)


def _mapping(value: Mapping[Any, Any], _: int) -> Iterator[UserImage]:
    keys = ", ".join(map(repr, list(value)[:5]))
    yield UserImage(
        value,
        ConfigError(f"A {type(value).__name__} with {keys}: give the value that is an image."),
    )


def _none(value: Any, _: int) -> Iterator[UserImage]:
    kind = "None" if value is None else f"a {type(value).__name__}"
    yield UserImage(
        value,
        ConfigError(
            f"An image is a file name, encoded bytes, a file object, a PIL image or an array of "
            f"pixels; found {kind}."
        ),
    )


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and bool(re.match(r"data:|[A-Za-z][A-Za-z0-9+.-]+://", value))


def _is_name_in_bytes(value: Any) -> bool:
    """Whether bytes are one line of printable text, which no image format begins with."""
    if not isinstance(value, bytes) or len(value) > 4096 or b"\0" in value:
        return False
    name = os.fsdecode(value)
    return name.isprintable() or os.path.lexists(name)


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") or (hasattr(value, "shape") and hasattr(value, "dtype"))


def _is_array_of_objects(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return getattr(dtype, "kind", "") in ("O", "S", "U") or getattr(dtype, "name", "") == "string"


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any, int], Iterator[UserImage]]], ...] = (
    (_is_url, _url),
    (lambda value: isinstance(value, (str, os.PathLike)), _name),
    (_is_name_in_bytes, _name),
    (lambda value: isinstance(value, (bytes, bytearray, memoryview)), _as_it_is),
    (lambda value: hasattr(value, "read"), _as_it_is),
    (lambda value: isinstance(value, (Image.Image, Pixels, ConfigError)), _as_it_is),
    (_is_array_of_objects, _list_elements),
    (_is_array, _array),
    (lambda value: isinstance(value, Mapping), _mapping),
    (lambda value: isinstance(value, Iterable), _elements),
    (lambda value: True, _none),
)
"""The interpretation of an object: the first row that matches it."""


def _images_first(values: np.ndarray, channels: int) -> np.ndarray:
    """Returns the images of an array, `(images, height, width, channels)`, without a copy.

    An axis can be the channels if its length is the model's number of channels, or 1, or, for a
    model of 3 channels, 4. If both ends can, the end with the model's number of channels is.
    """
    counts = {1, 4, channels} if channels == 3 else {1, channels}
    shape = values.shape
    if values.ndim == 2:
        return values[None, ..., None]
    if values.ndim not in (3, 4):
        hint = " Are these labels? Give only the images." if values.ndim == 1 else ""
        raise ConfigError(
            f"An image array has shape (height, width, channels), found {shape}.{hint}"
        )
    first, last = shape[-3], shape[-1]
    ends = [end for end in (first, last) if end in counts]
    if len(ends) == 2 and channels in ends and first != last:
        ends = [channels]
    if len(ends) == 2:
        before = "first" if values.ndim == 3 else "second"
        raise ConfigError(
            f"An array of shape {shape}: both its {before} and its last axis may count channels. "
            "Give PIL images instead."
        )
    if not ends:
        if values.ndim == 3 and channels == 1 and last not in (3, 4):
            return values[..., None]
        raise ConfigError(
            f"The model takes channels={channels}, found an array of shape {shape}. Expected "
            f"(height, width, {channels}) or a batch of them; grey images need an axis for their "
            "channel: images[..., None]."
        )
    if last != ends[0]:
        values = np.moveaxis(values, -3, -1)
    return values if values.ndim == 4 else values[None]


_ALMOST_BLACK = 3


def _white(images: np.ndarray) -> int:
    """Returns the value that means full brightness in this array: 1 or 255."""
    if images.dtype.kind not in "uif" or not images.size:
        return 255  # refused when the image is decoded
    # The first bright image decides; the images after it are not read.
    brightest = 0.0
    for image in images:
        brightest = max(brightest, float(image.max()))
        if brightest > _ALMOST_BLACK:
            return 255
    if images.dtype.kind != "f" or brightest > 1:
        if brightest > 0:
            warn(
                f"All pixels are at most {brightest:g}, almost black in [0, 255]. If their range "
                "is [0, 1], clip or scale them first.",
            )
        return 255
    if brightest == 1 and all(((image == 0) | (image == 1)).all() for image in images):
        warn(
            "Float pixels that are all 0 or 1 are taken for black and white in [0, 1]; if they are "
            "dark pixels in [0, 255], pass them as integers.",
        )
    return 1


def eight_bit_range(pixels: Pixels, pixel_range: Range | None = None) -> np.ndarray:
    """Returns the values in [0, 255]: uint8 if all are whole numbers, else float32.

    Whole numbers are 8-bit pixels of another type. They become uint8 because the libraries that
    the weights come from round and clip 8-bit pixels.

    Args:
        pixels: an image.
        pixel_range: values of black and white of an image that is not uint8; None for those that
            the user's array suggests.

    Raises:
        ConfigError: the values have another range or type, or the image has no pixels.
    """
    values = pixels.values
    if values.dtype.kind not in "uif":
        hint = " Multiply a mask by 255." if values.dtype.kind == "b" else ""
        raise ConfigError(f"Pixels must be numbers in [0, 255], found {values.dtype}.{hint}")
    if 0 in values.shape:
        raise ConfigError(f"An image of shape {values.shape} has no pixels.")
    if pixel_range is not None:
        return values if values.dtype == np.uint8 else to_8_bits(values, pixel_range)
    white = pixels.of.white
    if values.dtype == np.uint8:
        return values
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= white):
        raise ConfigError(_out_of_range(values, low, high))
    if values.dtype.kind != "f":
        return values.astype(np.uint8)
    scaled, slack = values.astype(np.float32, copy=False), 0.0
    if white == 1:
        scaled = scaled * np.float32(255)
        # k / 255 was rounded to the type of `values`; `slack` is the largest error of that.
        slack = min(255 * max(float(np.finfo(t).eps) for t in (values.dtype, np.float32)), 0.25)
    rounded = np.rint(scaled)
    if (np.abs(scaled - rounded) <= slack).all():
        return rounded.astype(np.uint8)
    return scaled


def _out_of_range(values: np.ndarray, low: float, high: float) -> str:
    if not np.isfinite(high - low):
        return "Pixels must be finite, found NaN or infinity: np.nan_to_num replaces them."
    message = f"Pixels must be in [0, 255] or [0, 1], found [{low:g}, {high:g}]."
    if low < 0:
        return (
            f"{message} Images with values below 0 are prepared already: pass them to "
            "model.predict, or call the model. If resizing made the values negative, use np.clip."
        )
    range_ = likely_range(values) if values.dtype.kind != "f" else (f"{low:g}", f"{high:g}")
    return (
        f"{message} Give Preprocessor(pixel_range=(black, white)) (--pixel-range), probably "
        f"({range_[0]}, {range_[1]})."
    )
