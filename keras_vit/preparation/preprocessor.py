"""From an image file, PIL image or array to the float32 batch that a model reads.

NumPy and Pillow only: it runs in any data loader, whatever the backend.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from keras_vit.errors import ConfigError
from keras_vit.preparation.protocols import FILTERS, ProtocolSpec, compact, complete

Size = tuple[int, int]
Item = Any  # one image: a path, a PIL image or an array
Unreadable = Callable[[Item, ConfigError], None]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_FILTERS = {name: Image.Resampling[name.upper()] for name in FILTERS}
_MOST_PIXELS = 2**26
_STRIP = 64
DAMAGED = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)
"""What Pillow raises for files that are absent, no images, damaged or too large."""


@dataclasses.dataclass(frozen=True)
class Preprocessor:
    """Images in, `float32 (batch, height, width, channels)` in [-1, 1] out.

    Call it with one image or any iterable of them: a path, a PIL image, or an array
    `(height, width)`, `(height, width, channels)` or a batch of such. Arrays hold
    pixel values in [0, 255], integer or float; whole numbers are treated alike in either
    type, fractions are not rounded. Files are turned upright by their
    EXIF tag; grey and transparent ones get the model's channels. Several images are
    decoded and resized in parallel.

    Args:
        image_size: (height, width), one number for both, or None to keep the images'
            own common size.
        channels: of the model.
        protocol: how an image comes to that size, a name or an object of name and
            parameters; see `keras_vit.preparation.protocols.PROTOCOLS`. The range is [-1, 1]
            unless it states another `mean` and `std`.
        data_format: `"channels_last"`, or `"channels_first"` for a model of that kind.

    Raises:
        ConfigError: unknown protocol or parameter; when called, an image that cannot be
            read or has values or channels that the model does not take.

    >>> import numpy as np
    >>> from keras_vit import Preprocessor
    >>> preprocess = Preprocessor(224, protocol={"name": "timm", "crop_pct": 1.0})
    >>> preprocess(np.zeros((480, 640, 3), "uint8")).shape
    (1, 224, 224, 3)
    """

    image_size: int | Size | None
    channels: int = 3
    protocol: ProtocolSpec = dataclasses.field(default="paper", hash=False)
    data_format: str = "channels_last"
    _parameters: dict[str, Any] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size = _pair(self.image_size)
        parameters = complete(self.protocol)
        for key in ("mean", "std"):
            found = parameters[key]
            if isinstance(found, list) and len(found) != self.channels:
                raise ConfigError(
                    f"Protocol {parameters['name']!r}: {key} has {len(found)} numbers, expected "
                    f"one, or one for each of {self.channels} channels."
                )
        if size is not None and parameters.get("resize_small") is not None:
            if parameters["image_size"] is None:
                parameters["image_size"] = max(size)
            if _resize_small(size, parameters) < max(size):
                raise ConfigError(
                    f"Protocol 'big_vision': resize_small={parameters['resize_small']} for images "
                    f"of {parameters['image_size']} pixels leaves less than the crop of {size}; "
                    "expected at least as much."
                )
        object.__setattr__(self, "image_size", size)
        object.__setattr__(self, "protocol", compact(parameters))
        object.__setattr__(self, "_parameters", parameters)

    @classmethod
    def from_preset(
        cls, source: str | os.PathLike[str], image_size: int | Size | None = None
    ) -> "Preprocessor":
        """Returns the preprocessor of a preset, without its weights and without a backend.

        Args:
            source: what `VisionTransformer.from_preset` takes.
            image_size: another one than the preset's.

        Raises:
            PresetError: there is no such preset, or its `config.json` is damaged.
            CheckpointError: a file or folder of another library cannot be read.
            ConfigError: the source does not tell its image size.
        """
        from keras_vit.presets import describe

        found = describe(source)
        size = image_size or found.config.image_size
        if size is None and "image_size" in getattr(found, "undetermined", ()):
            raise ConfigError(f"{source} does not tell its image_size; give it by name.")
        return cls(size, found.config.channels, found.protocol)

    def __call__(self, images: Any) -> np.ndarray:
        results = self._prepare(list(self._items(images)))
        for result in results:
            if isinstance(result, ConfigError):
                raise result
        return self.stack(results)

    def batches(
        self, images: Any, batch_size: int = 32, unreadable: Unreadable | None = None
    ) -> Iterator[tuple[list[Item], np.ndarray]]:
        """Yields images and what becomes of them, the next batch being prepared meanwhile.

        Args:
            images: as when called; an iterator is read as it is needed, so that a
                source larger than memory is no problem.
            batch_size: images per batch; the last may have fewer.
            unreadable: called with an image and the reason where one cannot be read,
                which is then left out. None raises the reason.

        Yields:
            The images of a batch as they were given, and
            `float32 (images, height, width, channels)`.

        Raises:
            ConfigError: as when called.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size}, expected at least 1.")
        source = self._items(images)

        def prepare_next() -> tuple[list[Item], list[Any]]:
            items = list(itertools.islice(source, batch_size))
            return items, self._prepare(items)

        with ThreadPoolExecutor(1, "keras_vit-batches") as ahead:
            coming = ahead.submit(prepare_next)
            while (batch := coming.result())[0]:
                coming = ahead.submit(prepare_next)
                readable = []
                for item, result in zip(*batch, strict=True):
                    if not isinstance(result, ConfigError):
                        readable.append((item, result))
                    elif unreadable is None:
                        raise result
                    else:
                        unreadable(item, result)
                if readable:
                    items, arrays = zip(*readable, strict=True)
                    yield list(items), self.stack(arrays)

    def decode(self, item: Item) -> Image.Image | np.ndarray:
        """Returns one image upright and with the model's channels, the first step of a call.

        Args:
            item: a path, a binary file, a PIL image, or an array (height, width, channels).

        Raises:
            ConfigError: the image cannot be read, or is none for this model.
        """
        if isinstance(item, np.ndarray):
            return self._with_channels(item)
        if self.channels not in _MODES:
            raise ConfigError(
                f"A model of {self.channels} channels takes arrays; files have 1, 3 or 4."
            )
        if isinstance(item, Image.Image):
            return _converted(item, _MODES[self.channels])
        path = os.fsdecode(item) if isinstance(item, (str, bytes, os.PathLike)) else item
        try:
            with Image.open(path) as file:
                file.load()
                ImageOps.exif_transpose(file, in_place=True)
                return _converted(file, _MODES[self.channels])
        except DAMAGED as error:
            name = path if isinstance(path, str) else getattr(path, "name", "an encoded image")
            raise ConfigError(f"{name}: not a readable image ({error}).") from error

    def resize(self, image: Image.Image | np.ndarray) -> np.ndarray:
        """Returns a decoded image at the model's size, by the protocol, the second step.

        The result is (height, width, channels), uint8 or float32, in [0, 255].
        """
        size = _pair(self.image_size)
        if size is None:
            return _array(image)
        return _RESIZE[self._parameters["name"]](image, size, self._parameters)

    def scale(self, image: np.ndarray) -> np.ndarray:
        """Returns pixels of [0, 255] in the model's range, float32: the third step."""
        mean, std = (np.float32(255) * np.float32(self._parameters[k]) for k in ("mean", "std"))
        scaled = np.subtract(image, mean, dtype=np.float32)
        return np.divide(scaled, std, out=scaled)

    def pixels(self, batch: np.ndarray) -> np.ndarray:
        """Returns a prepared batch as pictures, float32 (batch, height, width, channels).

        It undoes `scale` and the data format; values are in [0, 1].
        """
        if self.data_format == "channels_first":
            batch = np.moveaxis(batch, 1, -1)
        mean, std = (np.float32(self._parameters[k]) for k in ("mean", "std"))
        return np.clip(batch * std + mean, 0, 1)

    def stack(self, images: Iterable[Any]) -> np.ndarray:
        """Returns scaled images as one batch, in the model's data format.

        Raises:
            ConfigError: there is none, or they differ in size.
        """
        images = list(images)
        if not images:
            raise ConfigError("No image was given.")
        if len({image.shape for image in images}) > 1:
            raise ConfigError(
                "Images of different sizes make no batch for a model with image_size=None: "
                f"found {sorted({image.shape[:2] for image in images})}."
            )
        stacked = np.stack(images)
        return stacked if self.data_format == "channels_last" else np.moveaxis(stacked, -1, 1)

    def _items(self, images: Any) -> Iterator[Item]:
        """Images one at a time: paths, PIL images, and arrays (height, width, channels)."""
        if isinstance(images, (str, bytes, os.PathLike, Image.Image)):
            yield images
            return
        if isinstance(images, Iterable) and not hasattr(images, "__array__"):
            for image in images:
                yield from self._items(image)
            return
        array = np.asarray(images)
        if array.dtype.kind in "OSU":  # of paths
            for image in array.reshape(-1).tolist():
                yield from self._items(image)
        elif array.ndim == 2:
            yield array[..., None]
        elif array.ndim == 4:
            yield from array
        elif array.ndim != 3:
            raise ConfigError(
                f"An image array has shape (height, width, channels), found {array.shape}."
            )
        elif array.shape[-1] in (1, 3, 4, self.channels):
            yield array
        else:  # a batch of grey images
            yield from array[..., None]

    def _prepare(self, items: list[Item]) -> list[np.ndarray | ConfigError]:
        """One float32 array (height, width, channels) per image, or why there is none."""
        workers = min(len(items), os.cpu_count() or 1)
        if workers < 2:
            return [self._one(item) for item in items]
        # Pillow and NumPy release the interpreter while they decode and resize.
        with ThreadPoolExecutor(workers, "keras_vit-images") as pool:
            return list(pool.map(self._one, items))

    def _one(self, item: Item) -> np.ndarray | ConfigError:
        try:
            return self.scale(self.resize(self.decode(item)))
        except ConfigError as error:
            return error

    def _with_channels(self, array: np.ndarray) -> np.ndarray:
        if array.dtype.kind not in "uif":
            raise ConfigError(f"Pixels must be numbers in [0, 255], found {array.dtype}.")
        if 0 in array.shape:
            raise ConfigError(f"An image has pixels, found shape {array.shape}.")
        if array.dtype != np.uint8:
            low, high = array.min(), array.max()
            if not (low >= 0 and high <= 255):
                raise ConfigError(f"Pixels must be in [0, 255], found [{low}, {high}].")
            # Whole numbers are 8-bit pixels in another type: origins round and clip those.
            whole = array.dtype.kind != "f" or np.array_equal(array, np.rint(array))
            array = array.astype(np.uint8 if whole else np.float32, copy=False)
        channels = array.shape[-1]
        if channels == self.channels:
            return array
        if channels == 1:
            return np.repeat(array, self.channels, axis=-1)
        if channels == 4 and self.channels == 3:
            return array[..., :3]
        raise ConfigError(f"The model takes {self.channels} channels, found {channels}.")


def _pair(image_size: int | Size | None) -> Size | None:
    if image_size is None:
        return None
    pair = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if len(pair) != 2 or not all(isinstance(side, int) and side > 0 for side in pair):
        raise ConfigError(
            f"image_size={image_size!r}, expected a positive number, (height, width) or None."
        )
    return pair


def _converted(image: Image.Image, mode: str) -> Image.Image:
    """The image in 8 bits per channel."""
    if image.mode.startswith("I;16"):  # Pillow would clip at 255; libpng keeps the high byte
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ConfigError(
            f"An image of mode {image.mode} has no range of its own; expected 8 or 16 bits. Give "
            "an array with pixels in [0, 255]."
        )
    return image if image.mode == mode else image.convert(mode)


def _array(image: Image.Image | np.ndarray) -> np.ndarray:
    pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _size_of(image: Image.Image | np.ndarray) -> Size:
    if isinstance(image, np.ndarray):
        return image.shape[0], image.shape[1]
    return image.height, image.width


# The protocols: (image, size, parameters) -> (height, width, channels) in [0, 255].


def _paper(image: Image.Image | np.ndarray, size: Size, _: dict[str, Any]) -> np.ndarray:
    return resize_bilinear(_array(image), size)


def _big_vision(
    image: Image.Image | np.ndarray, size: Size, parameters: dict[str, Any]
) -> np.ndarray:
    pixels = _array(image)
    # Sides and factor in float32, rounded half to even: tf.round.
    sides = np.array(pixels.shape[:2], np.float32)
    height, width = np.rint(sides * (np.float32(_resize_small(size, parameters)) / sides.min()))
    target = _affordable(int(height), int(width))
    resized = _RESIZE_OF_TENSORFLOW[parameters["method"], parameters["antialias"]](pixels, target)
    crop = _centre(resized, size)
    # big_vision hands on the type that it was given: whole numbers, rounded towards zero.
    return np.clip(crop, 0, 255).astype(pixels.dtype, copy=False)


def _timm(image: Image.Image | np.ndarray, size: Size, parameters: dict[str, Any]) -> np.ndarray:
    scaled = tuple(math.floor(side / parameters["crop_pct"]) for side in size)
    height, width = _size_of(image)
    mode = parameters["crop_mode"]
    if mode == "squash":
        target = scaled
    elif mode == "border":
        ratio = max(height / scaled[0], width / scaled[1])
        target = (max(round(height / ratio), 1), max(round(width / ratio), 1))
    elif scaled[0] == scaled[1]:
        short, long = min(height, width), max(height, width)
        longer = int(scaled[0] * long / short)
        target = (scaled[0], longer) if height <= width else (longer, scaled[0])
    else:
        ratio = min(height / scaled[0], width / scaled[1])
        target = (round(height / ratio), round(width / ratio))
    resized = _resize_with_pillow(image, _affordable(*target), parameters["interpolation"])
    if mode == "border":
        resized = _framed(resized, size, parameters["mean"])
    # round, half to even, as torchvision's center_crop
    top, left = (round((have - want) / 2) for have, want in zip(resized.shape, size, strict=False))
    return resized[top : top + size[0], left : left + size[1]]


def _transformers(
    image: Image.Image | np.ndarray, size: Size, parameters: dict[str, Any]
) -> np.ndarray:
    target = tuple(round(side / parameters["crop_pct"]) for side in size)
    resized = _resize_with_pillow(image, target, parameters["interpolation"])
    return _centre(resized, size)


def _keras_hub(
    image: Image.Image | np.ndarray, size: Size, parameters: dict[str, Any]
) -> np.ndarray:
    pixels = _array(image)
    if parameters["crop_to_aspect_ratio"]:
        height, width = pixels.shape[:2]
        rows = max(min(height, int(np.float32(width * size[0]) / np.float32(size[1]))), 1)
        columns = max(min(width, int(np.float32(height * size[1]) / np.float32(size[0]))), 1)
        pixels = _centre(pixels, (rows, columns))
    resized = _RESIZE_OF_TENSORFLOW["bilinear", parameters["antialias"]](pixels, size)
    return np.rint(resized) if pixels.dtype == np.uint8 else resized  # as Keras's Resizing


_RESIZE: dict[str, Callable[[Any, Size, dict[str, Any]], np.ndarray]] = {
    "paper": _paper,
    "big_vision": _big_vision,
    "timm": _timm,
    "transformers": _transformers,
    "keras_hub": _keras_hub,
}


def _affordable(height: int, width: int) -> Size:
    """The size again, unless one line of pixels would become gigabytes before its crop."""
    if height * width > _MOST_PIXELS:
        raise ConfigError(
            f"An image so long would have {height}x{width} pixels before its central crop; crop it "
            "first, or choose a protocol that squashes."
        )
    return height, width


def _resize_small(size: Size, parameters: dict[str, Any]) -> int:
    small, meant_for = parameters["resize_small"] or 256, parameters["image_size"] or 224
    return round(small * max(size) / meant_for)


def _centre(image: np.ndarray, size: Size) -> np.ndarray:
    top, left = ((have - want) // 2 for have, want in zip(image.shape, size, strict=False))
    return image[top : top + size[0], left : left + size[1]]


def _framed(image: np.ndarray, size: Size, mean: float | list[float]) -> np.ndarray:
    """The image in a frame of the mean colour, where it is smaller than `size`."""
    height, width = (max(have, want) for have, want in zip(image.shape, size, strict=False))
    top, left = (height - image.shape[0]) // 2, (width - image.shape[1]) // 2
    framed = np.empty((height, width, image.shape[2]), image.dtype)
    framed[:] = np.round(255 * np.asarray(mean))
    framed[top : top + image.shape[0], left : left + image.shape[1]] = image
    return framed


def _resize_with_pillow(
    image: Image.Image | np.ndarray, size: tuple[int, ...], interpolation: str
) -> np.ndarray:
    """Pillow's resize, which antialiases; float arrays stay float, channel by channel."""
    to, resample = (size[1], size[0]), _FILTERS[interpolation]
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.shape[2] != 3:
            channels = [Image.fromarray(np.ascontiguousarray(c)) for c in np.moveaxis(image, -1, 0)]
            resized = np.stack([np.asarray(c.resize(to, resample)) for c in channels], axis=-1)
            return np.clip(resized, 0, 255, out=resized)  # bicubic overshoots
        image = Image.fromarray(np.ascontiguousarray(image))
    return _array(image.resize(to, resample))


def resize_bilinear(image: np.ndarray, size: Size) -> np.ndarray:
    """Resizes `(height, width, channels)` as `tf.image.resize` does: half-pixel, no antialias."""
    if image.shape[:2] == size:
        return image
    low, high, weight = zip(*map(_neighbours, image.shape[:2], size), strict=True)
    # Four gathers of the target's size: most of a large photograph is never looked at.
    across = weight[1][:, None]
    top, bottom = (
        left + (part.take(high[1], 1) - left) * across
        for part in (image.take(low[0], 0), image.take(high[0], 0))
        for left in [part.take(low[1], 1).astype(np.float32)]
    )
    return top + (bottom - top) * weight[0][:, None, None]


def _neighbours(source: int, target: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each target pixel the two source pixels beside its centre, and the second's share."""
    scale = np.float32(source) / np.float32(target)
    position = (np.arange(target, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    floor = np.floor(position)
    low = np.clip(floor, 0, source - 1).astype(np.intp)
    high = np.clip(floor + 1, 0, source - 1).astype(np.intp)
    return low, high, position - floor


def _weighted_sums(
    image: np.ndarray, axis: int, first: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Sums of neighbouring pixels along an axis, in float32 and in the order of the pixels.

    Args:
        image: `(height, width, channels)`.
        axis: 0 for rows, 1 for columns.
        first: the first pixel of each sum, `(target,)`.
        weights: `(target, pixels)`.
    """
    height, width, channels = image.shape
    shape = (len(first), width, channels) if axis == 0 else (height, len(first), channels)
    sums = np.zeros(shape, np.float32)
    taps = weights.T.astype(np.float32)
    # The innermost loop is over columns and channels together: a long one.
    taps = taps[:, :, None] if axis == 0 else np.repeat(taps, channels, axis=1)[:, None]
    last = image.shape[axis] - 1
    # Strips of lines, other than those that are summed over, stay in the processor's cache.
    for start in range(0, image.shape[1 - axis], _STRIP):
        strip = (slice(None),) * (1 - axis) + (slice(start, start + _STRIP),)
        lines, total = image[strip], sums[strip]
        pixels = np.empty(total.shape, image.dtype)
        terms = np.empty((total.shape[0], total.shape[1] * channels), np.float32)
        for k, tap in enumerate(taps):
            np.take(lines, np.minimum(first + k, last), axis, out=pixels, mode="clip")
            terms[...] = pixels.reshape(terms.shape)
            terms *= tap
            total += terms.reshape(total.shape)
    return sums


def _area_taps(source: int, target: int) -> tuple[np.ndarray, np.ndarray]:
    """How much of each source pixel lies below a target pixel, in source pixels."""
    scale = np.float32(source) / np.float32(target)
    start = np.arange(target, dtype=np.float32) * scale
    end = np.arange(1, target + 1, dtype=np.float32) * scale
    first = np.floor(start).astype(np.intp)
    count = int((np.ceil(end) - first).max())
    pixel = (first[:, None] + np.arange(count)).astype(np.float32)
    start, end = start[:, None], end[:, None]
    from_start = np.where(pixel + 1 > end, scale, pixel + 1 - start)
    to_end = np.where(pixel + 1 > end, np.maximum(end - pixel, 0), 1)
    return first, np.where(pixel < start, from_start, to_end)


def _triangle_taps(source: int, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Bilinear with antialias: the hat as wide as the target's pixels, where they are larger."""
    scale = source / target
    reach = max(scale, 1.0)
    centre = (np.arange(target) + 0.5) * scale
    first = np.maximum(np.ceil(centre - reach - 0.5), 0).astype(np.intp)
    pixel = first[:, None] + np.arange(2 * math.ceil(reach) + 1)
    weights = np.maximum(1 - np.abs(pixel + 0.5 - centre[:, None]) / reach, 0) * (pixel < source)
    return first, weights / weights.sum(axis=1, keepdims=True)


def _resize_area(image: np.ndarray, size: Size) -> np.ndarray:
    """Each target pixel is the mean of the source's area below it."""
    scales = np.array(image.shape[:2], np.float32) / np.array(size, np.float32)
    # TensorFlow's order of rounding, which decides where whole numbers are cut: the area last.
    for axis in (1, 0):
        image = _weighted_sums(image, axis, *_area_taps(image.shape[axis], size[axis]))
    return image * (np.float32(1) / (scales[0] * scales[1]))


def _resize_antialiased(image: np.ndarray, size: Size) -> np.ndarray:
    for axis in (0, 1):
        image = _weighted_sums(image, axis, *_triangle_taps(image.shape[axis], size[axis]))
    return image


_RESIZE_OF_TENSORFLOW: dict[tuple[str, bool], Callable[[np.ndarray, Size], np.ndarray]] = {
    ("area", False): _resize_area,
    ("area", True): _resize_area,  # area always antialiases
    ("bilinear", False): resize_bilinear,
    ("bilinear", True): _resize_antialiased,
}
"""tf.image.resize by method and antialias."""
