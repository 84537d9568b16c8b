"""Decodes an image file to an upright Pillow image of 8 bits per channel, within limits.

A file is opened once and decoded only if it is a regular file, Pillow knows its format, and its
header states no more pixels than the limit. Every exception of Pillow becomes a `ConfigError`
that names the file.
"""

import contextlib
import functools
import io
import os
import threading
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from keras_vit.environment.limits import IMAGE_PIXELS
from keras_vit.errors import ConfigError
from keras_vit.files import open_plain


class TooManyPixelsError(ConfigError):
    """The header of an encoded image states more pixels than the limit."""


MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's modes by number of channels."""

_MOST_BYTES = 2**28  # of an image in a file object
_LARGE = 2**24  # pixels of an image that is decoded alone

_REFUSED_FORMATS = {
    "EPS",  # Pillow would run Ghostscript on it
    "WMF",
    "BUFR",  # Pillow has no decoder for the next three
    "GRIB",
    "HDF5",
    "MPEG",
    "XBM",  # source text in C
}


@functools.cache
def formats() -> tuple[str, ...]:
    """Returns the formats, including Pillow's plugins, that are recognised by their first bytes."""
    Image.init()
    recognised = (name for name, (_, accepts) in Image.OPEN.items() if accepts is not None)
    return tuple(name for name in recognised if name not in _REFUSED_FORMATS)


def format_of_name(name: str) -> str | None:
    """Returns Pillow's format for the suffix of a file name, or None."""
    Image.init()
    format_ = Image.EXTENSION.get(PurePath(name).suffix.lower())
    return format_ if format_ in Image.OPEN and format_ not in _REFUSED_FORMATS else None


def name_of(source: Any) -> str:
    """Returns the name of an image for messages."""
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    if isinstance(source, Image.Image):
        return os.fsdecode(getattr(source, "filename", "")) or "a PIL image"
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "an encoded image"


def decode_image(source: Any, channels: int, max_pixels: int | None = None) -> Image.Image:
    """Returns an image upright, in 8 bits, with this many channels.

    Args:
        source: a file name, encoded bytes, a binary file object, which is read from its start,
            or a Pillow image.
        channels: 1, 3 or 4.
        max_pixels: most pixels of an encoded image; None for `environment.limits.IMAGE_PIXELS`.

    Raises:
        ConfigError: the file does not exist, is no regular file, or is no image; the image is
            damaged or too large, has pixels of an unknown range, or memory runs out.
    """
    if channels not in MODES:
        raise ConfigError(f"A model of {channels} channels takes arrays; files have 1, 3 or 4.")
    with open_image(source, max_pixels) as image:
        large = image.width * image.height > _LARGE
        with _turn_of_large_images(os.getpid()) if large else contextlib.nullcontext():
            image.load()
            return _convert(_turn_upright(image), MODES[channels])


def size_in_header(source: Any, max_pixels: int | None = None) -> tuple[int, int]:
    """Returns (height, width) from the header, without decoding a pixel.

    Raises:
        ConfigError: as `decode_image`, except for damage that only decoding finds.
    """
    with open_image(source, max_pixels) as image:
        return image.height, image.width


@contextlib.contextmanager
def open_image(source: Any, max_pixels: int | None = None) -> Iterator[Image.Image]:
    """Yields an image whose header is read and whose pixels are not decoded.

    Raises:
        ConfigError: as `size_in_header`; or, inside the `with` block, as `decode_image`.
    """
    name, limit = name_of(source), pixel_limit(max_pixels)
    with _refusals(name), contextlib.ExitStack() as stack:
        if isinstance(source, Image.Image):
            yield source
            return
        file = stack.enter_context(_file(source, name))
        # Some formats have no characteristic first bytes; the suffix decides for them.
        by_name = format_of_name(name)
        accepted = formats() if by_name in (None, *formats()) else (*formats(), by_name)
        image = stack.enter_context(Image.open(file, formats=accepted))
        pixels = image.width * image.height
        if pixels > limit:
            raise TooManyPixelsError(
                f"{name}: {image.height}x{image.width} pixels, expected at most {limit} in "
                "all. Make it smaller first, or raise the limit: Preprocessor(max_pixels=...) "
                "or KERAS_VIT_MAX_PIXELS."
            )
        _check_range(image, name)
        yield image


def pixel_limit(max_pixels: int | None) -> int:
    """Returns the largest number of pixels that an encoded image may have.

    Raises:
        ConfigError: the argument or the environment variable is no positive number.
    """
    if max_pixels is None:
        return IMAGE_PIXELS.value
    if not isinstance(max_pixels, int) or max_pixels < 1:
        raise ConfigError(f"max_pixels={max_pixels!r}, expected a positive number of pixels.")
    return max_pixels


@functools.cache
def _turn_of_large_images(process: int) -> threading.Lock:
    """Returns a lock of this process; a forked process gets its own, which nobody holds.

    Decoding a large image takes a multiple of its bytes, so only one thread does it at a time.
    """
    return threading.Lock()


def _file(source: Any, name: str) -> Any:
    """Returns a seekable binary file, as a context."""
    if isinstance(source, (str, os.PathLike)):
        return open_plain(name)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    with contextlib.suppress(AttributeError, OSError):  # a pipe cannot seek
        source.seek(0)
    content = source.read(_MOST_BYTES + 1)
    if isinstance(content, str):
        raise ConfigError(f"{name}: a text file; open it with mode 'rb'.")
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{name}: more than {_MOST_BYTES} bytes in a file object; give its path.")
    return io.BytesIO(content)


@contextlib.contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Turns every exception from one image into a `ConfigError` of one sentence."""
    try:
        yield
    except ConfigError:
        raise
    except FileNotFoundError as error:
        raise ConfigError(f"{name}: no such file.") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{name}: a folder, expected an image file.") from error
    except MemoryError as error:
        raise ConfigError(f"{name}: not enough memory to decode it.") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise TooManyPixelsError(
            f"{name}: more pixels than Pillow reads ({error}) Make it smaller first, or raise "
            "PIL.Image.MAX_IMAGE_PIXELS and the max_pixels of the Preprocessor."
        ) from error
    except Exception as error:  # Pillow's decoders raise errors of every kind on damaged files
        hint = ""
        if name.lower().endswith((".heic", ".heif")):
            hint = " Install pillow-heif and call pillow_heif.register_heif_opener() first."
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, UnidentifiedImageError):  # Pillow's sentence has a memory address
            reason = "its first bytes are those of no known format"
        raise ConfigError(f"{name}: not a readable image ({reason}).{hint}") from error


def _turn_upright(image: Image.Image) -> Image.Image:
    """Returns the image turned upright by its EXIF tag; the argument is not changed."""
    if image.getexif().get(ExifTags.Base.Orientation, 1) == 1:
        return image
    return ImageOps.exif_transpose(image)


def _check_range(image: Image.Image, name: str) -> None:
    if image.mode in ("I", "F"):
        raise ConfigError(
            f"{name}: an image of mode {image.mode} has no range of its own; expected 8 "
            "or 16 bits. Give an array with pixels in [0, 255] or [0, 1]."
        )


def _convert(image: Image.Image, mode: str) -> Image.Image:
    _check_range(image, name_of(image))
    if image.mode.startswith("I;16"):  # Pillow would clip at 255; libpng keeps the high byte
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode == mode:
        return image
    return image.convert(mode)
