"""`Preprocessor`: turns images of every kind into the float32 batch that a model takes.

The preprocessor uses only NumPy and Pillow, so it runs in any data loader and with any backend.
`inputs` interprets the user's images, `decoding` reads files, `resizing` applies the protocols.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from keras_vit.config.rules import COUNT, is_any_size, pair
from keras_vit.errors import ConfigError, shown
from keras_vit.images.decoding import Range, decode_image, own_name, pixel_limit
from keras_vit.images.geometry import Axis, resize_small_for
from keras_vit.images.inputs import Item, Pixels, UserImage, eight_bit_range, images_in
from keras_vit.images.packing import fit_to_patches, pack, pack_image
from keras_vit.images.protocols import ProtocolSpec, compact, complete
from keras_vit.images.resampling import Picture, Size, read_pixels, read_size
from keras_vit.images.resizing import find_axes, resize
from keras_vit.support.arguments import OnError, check_on_error
from keras_vit.support.text import visible

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Preprocessor:
    """Prepares images for a model: decodes, resizes, crops and scales them to [-1, 1].

    Call it with one image or any iterable of images: a file name, encoded bytes, a file object, a
    PIL image, or an array or tensor with or without a batch axis. It returns
    `float32 (batch, height, width, channels)`. Floats up to 1 are taken for [0, 1], all other
    pixels for [0, 255]; channels first are recognised. The tables of `docs/preprocessing.md` state
    each rule. The EXIF orientation of files is applied; grey and transparent images get the model's
    channels. Several images are decoded and resized in parallel.

    Args:
        image_size: (height, width), or one number for both; `(None, None)`, or None, to keep the
            size of the images, which must be the same.
        channels: number of channels of the model.
        protocol: resizing and scaling of an image, a name or a dict of name and
            parameters; see `keras_vit.images.protocols.PROTOCOLS`. The range is [-1, 1]
            unless the protocol states another `mean` and `std`.
        data_format: `"channels_last"`, or `"channels_first"` for a model of that kind.
        max_pixels: largest number of pixels of an encoded image; None for the value of
            `KERAS_VIT_MAX_PIXELS`, or 89,478,485, the number above which Pillow warns.
        scaled: True for pixels in the protocol's range; False for pixels in [0, 255], for a
            model with `rescale=True`.
        pixel_range: values of black and white in images of more than 8 bits, such as (0, 4095)
            for 12 bits; values beyond them become black or white. It applies to files of 16 and 32
            bits and to arrays of any type except uint8. None reads 16-bit files as [0, 65535] and
            arrays as [0, 255] or [0, 1].
        draft: True turns on scaled JPEG decoding for calls and `batches`: a JPEG file is decoded at
            1/2, 1/4 or 1/8 of its size if at least twice `image_size` remains. A photograph of
            4,000 pixels takes a ninth of the time, and pixels change by 0.4 levels of 255 on
            average, by at most 11 (four photographs); a crop may move by one pixel. It has no
            effect on other files, without an image size and with `patch_size`.
        patch_size: pixels of a patch, for a model with a packed stem: images keep their
            aspect ratio, and a batch is packed patches, see `keras_vit.images.packing`.

    Raises:
        ConfigError: the protocol or a parameter is unknown; in a call, an image cannot be
            read, or its values or channels do not fit the model.

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
    max_pixels: int | None = None
    scaled: bool = True
    pixel_range: Range | None = None
    draft: bool = False
    patch_size: int | Size | None = None
    _parameters: dict[str, Any] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size = _pair(self.image_size)
        if self.max_pixels is not None:
            pixel_limit(self.max_pixels)
        if self.pixel_range is not None:
            object.__setattr__(self, "pixel_range", _checked_range(self.pixel_range))
        parameters = complete(self.protocol)
        for key in ("mean", "std"):
            numbers = parameters[key]
            if isinstance(numbers, list) and len(numbers) != self.channels:
                raise ConfigError(
                    f"Protocol {parameters['name']!r}: {key} has {len(numbers)} values, expected "
                    f"one, or one for each of {self.channels} channels."
                )
        if size is not None and parameters.get("resize_small") is not None:
            if parameters["image_size"] is None:
                parameters["image_size"] = max(size)
            if resize_small_for(size, parameters) < max(size):
                raise ConfigError(
                    f"Protocol 'big_vision': resize_small={parameters['resize_small']} for images "
                    f"of {parameters['image_size']} pixels is smaller than the crop of {size}; "
                    "expected at least its size."
                )
        object.__setattr__(self, "image_size", size)
        if self.patch_size is not None:
            object.__setattr__(self, "patch_size", pair("patch_size", self.patch_size))
        object.__setattr__(self, "protocol", compact(parameters))
        object.__setattr__(self, "_parameters", parameters)

    @classmethod
    def from_preset(
        cls, source: str | os.PathLike[str], image_size: int | Size | None = None
    ) -> "Preprocessor":
        """Returns the preprocessor of a preset, without its weights and without a backend.

        Args:
            source: a source as for `VisionTransformer.from_preset`.
            image_size: image size instead of the preset's.

        Raises:
            PresetError: the preset does not exist, or its `config.json` is damaged.
            CheckpointError: a file or folder of another library cannot be read.
            ConfigError: the source does not state its image size.
        """
        from keras_vit.checkpoints.reading import info  # reads all families' tables

        return cls.from_description(info(source), image_size)

    @classmethod
    def from_description(
        cls, description: Any, image_size: int | Size | None = None
    ) -> "Preprocessor":
        """Returns the preprocessor for a result of `keras_vit.info`.

        Args:
            description: a `PresetConfig` or a `CheckpointInfo`.
            image_size: image size instead of the checkpoint's.

        Raises:
            ConfigError: the checkpoint does not state its image size.
        """
        size = description.config.image_size if image_size is None else image_size
        size = None if is_any_size(size) else size
        if size is None and "image_size" in getattr(description, "undetermined", ()):
            raise ConfigError(
                f"{description.path} does not state its image_size: give image_size=."
            )
        config, protocol = description.config, description.protocol
        patch_size = config.patch_size if config.stem.is_packed else None
        scaled = not description.rescale
        return cls(size, config.channels, protocol, scaled=scaled, patch_size=patch_size)

    def __call__(self, images: Any) -> np.ndarray:
        results = self._prepare(list(images_in(images, self.channels)))
        for result in results:
            if isinstance(result, ConfigError):
                raise result
        return self.stack(results)

    def batches(
        self, images: Any, batch_size: int = 32, on_error: OnError = "raise"
    ) -> Iterator[tuple[list[Item], np.ndarray]]:
        """Prepares images batch by batch; a thread prepares the next batch meanwhile.

        Args:
            images: images as for a call. An iterator is read on demand, so that a source may be
                larger than memory.
            batch_size: images per batch; the last batch may have fewer.
            on_error: `"raise"` for an error if an image cannot be read; `"skip"` to skip such
                images with a warning; or a function that is called with the image and the error.

        Yields:
            The images of a batch in the user's form, and
            `float32 (images, height, width, channels)`.

        Raises:
            ConfigError: as a call.
        """
        COUNT.check("batch_size", batch_size)
        skip = check_on_error(on_error)
        source = images_in(images, self.channels)
        groups = iter(lambda: list(itertools.islice(source, batch_size)), [])
        for group, results in read_ahead((group, self._prepare(group)) for group in groups):
            readable = []
            for image, result in zip(group, results, strict=True):
                if not isinstance(result, ConfigError):
                    readable.append((image.item, result))
                elif skip is None:
                    raise result
                else:
                    skip(image.item, result)
            if readable:
                items, arrays = zip(*readable, strict=True)
                yield list(items), self.stack(arrays)

    def prepare(self, item: Any) -> np.ndarray | ConfigError:
        """Prepares one image: float32 (height, width, channels), or the error.

        Args:
            item: one image of any kind, or its `Pixels`.
        """
        try:
            size = _pair(self.image_size) if self.draft and self._patch is None else None
            picture = self._decode(item, None if size is None else 2 * max(size))
            return self.scale(self.resize(picture))
        except ConfigError as error:
            return _naming(item, error)
        except MemoryError:
            return _naming(item, ConfigError("Not enough memory to prepare an image."))

    def decode(self, item: Any) -> Picture:
        """Decodes one image, with EXIF orientation applied and the model's channels: step one.

        Args:
            item: one image of any kind, or its `Pixels`.

        Raises:
            ConfigError: the image cannot be read, or does not fit the model.
        """
        return self._decode(item)

    def _decode(self, item: Any, shortest_side: int | None = None) -> Picture:
        images = list(itertools.islice(images_in(item, self.channels), 2))
        if len(images) != 1:
            raise ConfigError(f"Expected one image, found {'several' if images else 'none'}.")
        source = images[0].source
        if isinstance(source, ConfigError):
            raise source
        if isinstance(source, Pixels):
            return self._set_channels(eight_bit_range(source, self.pixel_range))
        return decode_image(source, self.channels, self.max_pixels, self.pixel_range, shortest_side)

    def find_axes(self, size: Size) -> list[Axis]:
        """Returns how `resize` resizes and crops height and width of an image of this size.

        It is not for a protocol with a frame, packed patches, or images of any size.
        """
        return find_axes(size, pair("image_size", self.image_size), self._parameters)

    def resize(self, image: Picture) -> np.ndarray:
        """Resizes and crops a decoded image to the model's size: step two.

        The result is (height, width, channels), uint8 or float32, in [0, 255].
        """
        size = _pair(self.image_size)
        if size is None:
            return read_pixels(image)
        parameters = self._parameters
        if self._patch is not None:  # no protocol crops an image whose aspect the model takes
            size = fit_to_patches(read_size(image), self._patch, self._most_patches)
            parameters = {**parameters, "crop_pct": 1.0, "crop_mode": "squash"}
        return resize(image, size, parameters)

    def check_size(self, image_size: tuple[int, int]) -> None:
        """Checks that `resize` can resize an image of this size.

        Args:
            image_size: (height, width) of the decoded image.

        Raises:
            ConfigError: an image of this size is too long and thin.
        """
        size = _pair(self.image_size)
        if size and self._patch is None and self._parameters.get("crop_mode") != "border":
            self.find_axes(image_size)

    def scale(self, image: np.ndarray) -> np.ndarray:
        """Scales pixels in [0, 255] to the model's range, float32: step three."""
        if not self.scaled:
            return np.asarray(image, np.float32)
        mean, std = (np.float32(255) * np.float32(self._parameters[k]) for k in ("mean", "std"))
        scaled = np.subtract(image, mean, dtype=np.float32)
        return np.divide(scaled, std, out=scaled)

    def pixels(self, batch: np.ndarray) -> np.ndarray:
        """Turns a prepared batch back into pictures, float32 (batch, height, width, channels).

        It inverts `scale` and the data format; values are in [0, 1].

        Raises:
            ConfigError: the batch is packed patches.
        """
        if self._patch is not None:
            raise ConfigError("A picture needs images of one size, found packed patches.")
        if self.data_format == "channels_first":
            batch = np.moveaxis(batch, 1, -1)
        if not self.scaled:
            return np.clip(batch / np.float32(255), 0, 1)
        mean, std = (np.float32(self._parameters[k]) for k in ("mean", "std"))
        return np.clip(batch * std + mean, 0, 1)

    @property
    def normalisation(self) -> tuple[Any, Any]:
        """Mean and standard deviation of pixels in [0, 1], numbers or lists of one per channel."""
        return self._parameters["mean"], self._parameters["std"]

    def stack(self, images: Iterable[Any]) -> np.ndarray:
        """Stacks scaled images to one batch, in the model's data format or as packed patches.

        Raises:
            ConfigError: there is no image, or the images differ in size.
        """
        images = list(images)
        if not images:
            raise ConfigError("No image was given.")
        if self._patch is not None:
            most = self._most_patches
            return np.stack([pack_image(image, self._patch, most) for image in images])
        if len({image.shape for image in images}) > 1:
            raise ConfigError(
                "Images of a batch must have the same size for a model of any size, found "
                f"{sorted({image.shape[:2] for image in images})}. Choose an image_size."
            )
        stacked = np.stack(images)
        return stacked if self.data_format == "channels_last" else np.moveaxis(stacked, -1, 1)

    def pack(self, patches: Any, shapes: Any, mask: Any = None) -> np.ndarray:
        """Makes a packed batch from patches that another library prepared.

        Args:
            patches, shapes, mask: `pixel_values`, `spatial_shapes` and `pixel_attention_mask` of
                transformers' NaFlex; see `keras_vit.images.packing.pack`.

        Raises:
            ConfigError: the arrays do not fit each other or the model.
        """
        return pack(patches, shapes, self._most_patches, mask)

    @property
    def _patch(self) -> Size | None:
        return None if self.patch_size is None else pair("patch_size", self.patch_size)

    @property
    def _most_patches(self) -> int:
        pairs = zip(_pair(self.image_size) or (0, 0), self._patch or (1, 1), strict=True)
        return math.prod(side // patch for side, patch in pairs)

    def _prepare(self, images: list[UserImage]) -> list[np.ndarray | ConfigError]:
        """Returns a float32 array (height, width, channels), or the error, for each image."""
        # An object that occurs twice is read once: two threads must not read one file object.
        sources = {id(image.source): image.source for image in images}
        workers = min(len(sources), os.cpu_count() or 1)
        if workers < 2:
            results = list(map(self.prepare, sources.values()))
        else:
            # Threads help, because Pillow and NumPy release the interpreter's lock.
            with ThreadPoolExecutor(workers, "keras_vit-images", _yield_to_others) as pool:
                results = list(pool.map(self.prepare, sources.values()))
        prepared = dict(zip(sources, results, strict=True))
        return [prepared[id(image.source)] for image in images]

    def _set_channels(self, array: np.ndarray) -> np.ndarray:
        channels = array.shape[-1]
        if channels == self.channels:
            return array
        if channels == 1:
            return np.repeat(array, self.channels, axis=-1)
        if channels == 4 and self.channels == 3:
            return array[..., :3]
        raise ConfigError(f"The model takes {self.channels} channels, the image has {channels}.")


def read_ahead(items: Iterable[T]) -> Iterator[T]:
    """Yields items, which must not be None; a thread computes the next item meanwhile."""
    source = iter(items)
    with ThreadPoolExecutor(1, "keras_vit-ahead") as thread:
        coming = thread.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, source, None)
            yield item


def _yield_to_others() -> None:
    """Lowers the priority of the calling thread, so that a model's threads never wait for its core.

    On two cores with torch, whose threads spin while one of them waits, `embed` of a small model
    takes 0.8 of the time. Only Linux has thread priorities.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a sandbox may forbid it, and images are read as well
            os.nice(10)  # from the caller's priority, at most to the lowest


def _naming(item: Any, error: ConfigError) -> ConfigError:
    """Returns the error with the name of its image at the beginning, if the image has one."""
    name = visible(own_name(item))
    return error if name in str(error) else ConfigError(f"{name}: {error}")


def _checked_range(pixel_range: Any) -> Range:
    try:
        black, white = map(float, pixel_range)
    except (TypeError, ValueError):
        black = white = math.nan
    if not (math.isfinite(white - black) and black < white):
        raise ConfigError(
            f"pixel_range={shown(pixel_range)}, expected two numbers, the values of black and of "
            "white, such as (0, 4095)."
        )
    return black, white


def _pair(image_size: int | Size | None) -> Size | None:
    is_open = image_size is None or is_any_size(image_size)
    return None if is_open else pair("image_size", image_size)
