"""Decodes an image file to a Pillow image with 8 bits per channel, within limits.

The EXIF orientation is applied. A file is opened once, and decoded only if it is a regular file,
Pillow knows its format, and its header states no more pixels than the limit. Every exception of
Pillow becomes a `ConfigError` that names the file.
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

from keras_vit.errors import ConfigError
from keras_vit.support.files import open_plain
from keras_vit.support.limits import IMAGE_PIXELS
from keras_vit.support.text import visible, warn

Range = tuple[float, float]
"""The values of black and white."""


class TooManyPixelsError(ConfigError):
    """The header of an encoded image states more pixels than the limit, in total or on a side."""


MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's modes by number of channels."""

_MOST_BYTES = 2**28  # of an image in a file object
LONGEST_SIDE = 2**16 - 1
"""Largest side of an encoded image in pixels, the limit of JPEG.

A long strip takes ten times the memory of a square of as many pixels.
"""

_FEW = 64  # levels of grey below which a picture shows visible steps
_LARGE = 2**24  # pixels of an image that is decoded while no other large one is

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


def find_format(name: str) -> str | None:
    """Returns Pillow's format for the suffix of a file name, or None."""
    Image.init()
    format_ = Image.EXTENSION.get(PurePath(name).suffix.lower())
    return format_ if format_ in Image.OPEN and format_ not in _REFUSED_FORMATS else None


def name_source(source: Any) -> str:
    """Returns the name of an image for messages."""
    own = visible(own_name(source))  # a line feed in a name would end the message
    return own or ("a PIL image" if isinstance(source, Image.Image) else "an encoded image")


def own_name(source: Any) -> str:
    """Returns the name of the file of an image, or "" if it has none."""
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    name = getattr(source, "filename" if isinstance(source, Image.Image) else "name", None)
    return os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else ""


def decode_image(
    source: Any,
    channels: int,
    max_pixels: int | None = None,
    pixel_range: Range | None = None,
    shortest_side: int | None = None,
) -> Image.Image:
    """Decodes an image to 8 bits and this many channels; its EXIF orientation is applied.

    Args:
        source: a file name, encoded bytes, a binary file object, which is read from its start,
            or a Pillow image.
        channels: 1, 3 or 4.
        max_pixels: largest number of pixels of an encoded image; None for
            `support.limits.IMAGE_PIXELS`.
        pixel_range: values of black and white in an image of more than 8 bits; None for the
            whole range of 16 bits.
        shortest_side: smallest side to which a JPEG may be scaled by 2, 4 or 8 while it is decoded
            (Pillow's `draft`); None for the original size.

    Raises:
        ConfigError: the file does not exist, or is not a regular file or an image; the image is
            damaged or too large, has pixels of an unknown range, or memory runs out.
    """
    if channels not in MODES:
        raise ConfigError(f"A model with {channels} channels takes arrays; files have 1, 3 or 4.")
    with open_image(source, max_pixels) as image:
        if shortest_side is not None and not isinstance(source, Image.Image):
            image.draft(None, (shortest_side, shortest_side))
        large = image.width * image.height > _LARGE
        with _share_lock(os.getpid()) if large else contextlib.nullcontext():
            deep = _is_deep_colour(image)
            image.load()
            upright = _apply_orientation(image)
            return _convert(upright, MODES[channels], name_source(source), pixel_range, deep)


def size_in_header(source: Any, max_pixels: int | None = None) -> tuple[int, int]:
    """Returns (height, width) from the header, without decoding the pixels.

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
    name, limit = name_source(source), pixel_limit(max_pixels)
    with _refusals(name), contextlib.ExitStack() as stack:
        if isinstance(source, Image.Image):
            yield source
            return
        file = stack.enter_context(_file(source, name))
        # Some formats have no characteristic first bytes; the suffix decides for them.
        by_name = find_format(name)
        accepted = formats() if by_name in (None, *formats()) else (*formats(), by_name)
        image = stack.enter_context(Image.open(file, formats=accepted))
        pixels = image.width * image.height
        if pixels > limit:
            raise TooManyPixelsError(
                f"{name}: {image.height}x{image.width} pixels, expected at most {limit} in "
                "total. Make it smaller, or raise the limit: Preprocessor(max_pixels=...) or "
                "KERAS_VIT_MAX_PIXELS."
            )
        if max(image.size) > LONGEST_SIDE:
            raise TooManyPixelsError(
                f"{name}: {image.height}x{image.width} pixels, expected at most {LONGEST_SIDE:,} "
                "on each side. Divide it into parts, or give an array."
            )
        yield image


def pixel_limit(max_pixels: int | None) -> int:
    """Returns the largest number of pixels that an encoded image may have.

    Raises:
        ConfigError: the argument or the environment variable is not a positive number.
    """
    if max_pixels is None:
        return IMAGE_PIXELS.value
    if not isinstance(max_pixels, int) or max_pixels < 1:
        raise ConfigError(f"max_pixels={max_pixels!r}, expected a positive number of pixels.")
    return max_pixels


@functools.cache
def _share_lock(process: int) -> threading.Lock:
    """Returns a lock of this process; a forked process gets a new one, which is free.

    Decoding a large image takes a multiple of its bytes, so only one thread does it at a time.
    """
    return threading.Lock()


def _file(source: Any, name: str) -> Any:
    """Returns a seekable binary file, as a context."""
    if isinstance(source, (str, os.PathLike)):
        return open_plain(os.fsdecode(source))
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
    """Turns every exception about an image into a `ConfigError` of one sentence."""
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
            f"{name}: more pixels than Pillow reads ({error}) Make it smaller, or raise "
            "PIL.Image.MAX_IMAGE_PIXELS and the max_pixels of the Preprocessor."
        ) from error
    except Exception as error:  # Pillow's decoders raise errors of every kind on damaged files
        hint = ""
        if name.lower().endswith((".heic", ".heif")):
            hint = " Install pillow-heif and call pillow_heif.register_heif_opener() first."
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, UnidentifiedImageError):  # Pillow's sentence has a memory address
            reason = "unknown format"
        raise ConfigError(f"{name}: not a readable image ({reason}).{hint}") from error


def _apply_orientation(image: Image.Image) -> Image.Image:
    """Applies the EXIF orientation; the argument is not changed."""
    if image.getexif().get(ExifTags.Base.Orientation, 1) == 1:
        return image
    return ImageOps.exif_transpose(image)


def to_8_bits(values: np.ndarray, pixel_range: Range) -> np.ndarray:
    """Returns pixels as uint8: the two values of a range become 0 and 255, others are clipped.

    Raises:
        ConfigError: a value is NaN.
    """
    low, high = pixel_range
    scaled = (values.astype(np.float32) - np.float32(low)) * np.float32(255 / (high - low))
    if np.isnan(scaled).any():
        raise ConfigError("Pixels must be numbers, found NaN.")
    return np.rint(np.clip(scaled, 0, 255)).astype(np.uint8)


def _is_deep_colour(image: Image.Image) -> bool:
    """Whether Pillow decodes 16 bits of several channels to their high bytes."""
    tiles = getattr(image, "tile", ())
    return image.mode in ("RGB", "RGBA", "LA") and any(";16" in str(tile[-1]) for tile in tiles)


def _convert(
    image: Image.Image, mode: str, name: str, pixel_range: Range | None, is_deep_colour: bool
) -> Image.Image:
    if is_deep_colour and pixel_range is not None:
        raise ConfigError(
            f"{name}: Pillow reads colours of 16 bits as 8 bits, so pixel_range= has no effect. "
            "Read the file with another library, such as tifffile, and pass the array."
        )
    if is_deep_colour and max(high for _, high in image.convert("RGB").getextrema()) < _FEW:
        warn(
            f"{name}: the brightest colour of 16 bits becomes less than {_FEW} of 255. If white is "
            "below 65535, read the file with another library, such as tifffile, and pass the array "
            "with pixel_range=(black, white)."
        )
    has_16_bits = image.mode.startswith("I;16")
    if has_16_bits or image.mode in ("I", "F"):
        values = np.asarray(image)
        if pixel_range is not None:
            image = Image.fromarray(to_8_bits(values, pixel_range))
        elif has_16_bits:  # Pillow would clip at 255; libpng keeps the high byte
            _warn_of_few_levels(values, name)
            image = Image.fromarray((values >> 8).astype(np.uint8))
        else:
            raise ConfigError(
                f"{name}: the range of an image of mode {image.mode} is unknown; expected 8 or 16 "
                "bits. Give pixel_range=(black, white), the values of its darkest and brightest "
                "pixels."
            )
    return image if image.mode == mode else image.convert(mode)


def _warn_of_few_levels(values: np.ndarray, name: str) -> None:
    """Warns of 16-bit pixels whose high bytes keep less than half of their levels, 64 at most."""
    present = np.zeros(2**16, bool)
    present[values.reshape(-1)] = True
    levels, kept = int(present.sum()), int(present.reshape(256, 256).any(1).sum())
    if kept <= _FEW and levels > 2 * kept:
        warn(
            f"{name}: {levels:,} levels of 16 bits become {kept} of 8 bits. If the brightest white "
            f"is below 65535, give pixel_range=(black, white), such as {likely_range(values)}."
        )


def likely_range(values: np.ndarray) -> tuple[int, int]:
    """Guesses black and white of integer pixels by the fewest bits, 8 to 32, that hold them."""
    bits = (8, 10, 12, 14, 16, 24, 32)
    return 0, next((2**b - 1 for b in bits if values.max() < 2**b), int(values.max()))
