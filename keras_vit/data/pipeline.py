"""Prepares the batch of an index: decode, crop, flip, RandAugment, scale, stack, mix.

Grain runs these steps: it reads ahead in threads or processes, and starts at any batch.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from keras_vit.config.views import Views
from keras_vit.data import crops, mixing, order
from keras_vit.data.augmentation import Augmentation
from keras_vit.data.randaugment import randaugment
from keras_vit.data.records import Records
from keras_vit.data.views import make_views
from keras_vit.errors import ConfigError, listed
from keras_vit.images.preprocessor import Preprocessor
from keras_vit.images.protocols import complete
from keras_vit.images.resampling import make_picture, read_pixels, read_size

Images: TypeAlias = np.ndarray | dict[str, np.ndarray]
"""Prepared images; or the views of images, by the names of `Views.groups`."""
Batch: TypeAlias = tuple[Any, ...]
"""Images and labels, and sample weights if batches are filled up; or only views."""

Part: TypeAlias = tuple[int, list[tuple[Images, np.ndarray]]]
"""Number of a batch, counted from epoch 0 on, and prepared images of it with their labels."""

_AHEAD = 2
"""Batches that are prepared before they are needed."""

_ENDLESS = 2**30
"""Epochs of a data set that is read until its reader stops."""


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Prepares batches, which depend only on the seed, the epoch and the index of the batch.

    Args:
        records: the images, inspected.
        preprocessor: decodes, resizes and scales the images.
        augmentation: random changes for training, or the views of each image; None for the
            preprocessor's protocol.
        one_hot: whether labels are one-hot rows, or multi-label rows.
        stream: the images of each batch, or of a shard of it.
        threads: threads of Grain that prepare images.

    Raises:
        ConfigError: the augmentation cannot be applied to these images, or to masks and depth maps.
    """

    records: Records
    preprocessor: Preprocessor
    augmentation: Augmentation | Views | None
    one_hot: bool
    stream: order.Stream
    threads: int

    def __post_init__(self) -> None:
        augmentation, prepares = self.augmentation, self.preprocessor
        makes_views = isinstance(augmentation, Views)
        if self.records.targets is not None:
            faults = {
                "mixup, cutmix or one_hot=True": self.one_hot,
                "views": makes_views,
                "RandAugment": getattr(augmentation, "randaugment", None),
                "packed patches": prepares.patch_size,
                "crop_mode='border'": complete(prepares.protocol).get("crop_mode") == "border",
            }
            if found := [fault for fault, is_found in faults.items() if is_found]:
                raise ConfigError(
                    "Masks and depth maps are only cropped, flipped and resized with their images, "
                    f"found {listed(found)}. Mixing needs labels of whole images, and RandAugment "
                    "moves only the pixels of the image. Give augmentation='crop_flip', and a "
                    "preprocessor without patch_size and border."
                )
        is_of_colours = makes_views or getattr(augmentation, "randaugment", None)
        if is_of_colours and prepares.channels not in (1, 3):
            raise ConfigError(
                f"RandAugment and views are for 1 or 3 channels, found {prepares.channels}. Give "
                "an Augmentation with randaugment=None; for views, a model with channels=1 or 3."
            )
        if getattr(augmentation, "crop", None) is not None and prepares.image_size is None:
            raise ConfigError(
                "A random crop is resized to the preprocessor's image_size, found None; give a "
                "preprocessor with an image_size, or an Augmentation with crop=None."
            )
        is_of_one_size = makes_views or getattr(augmentation, "mixes", False)
        if is_of_one_size and prepares.patch_size is not None:
            raise ConfigError(
                "Views, mixup and cutmix need images of one size, found packed patches. Give "
                "an Augmentation with mixup=0 and cutmix=0; for views, a model of another stem."
            )

    def map_dataset(self, epochs: int) -> Any:
        return self._parts(epochs).batch(self.num_parts, batch_fn=self.join)

    def read_from(self, number: int) -> Iterator[Batch]:
        """Yields the batches from this index on, without end, prepared ahead by threads."""
        import grain

        options = grain.ReadOptions(self.threads, _AHEAD * self.num_parts)
        parts = self._parts(_ENDLESS)[number * self.num_parts :].to_iter_dataset(options)
        return iter(parts.batch(self.num_parts, batch_fn=self.join))

    def _parts(self, epochs: int) -> Any:
        import grain  # after keras_vit, whose start it would slow down

        return grain.MapDataset.range(epochs * self.stream.num_batches * self.num_parts).map(
            self.part
        )

    @property
    def num_parts(self) -> int:
        """Number of parts of a batch, which threads prepare in parallel.

        Handing one small image to a thread would take longer than preparing it.
        """
        return min(self.stream.batch_size, 4 * self.threads)

    def part(self, number: int) -> Part:
        """Returns a part of a batch by its index, counted from epoch 0 on."""
        batch, place = divmod(int(number), self.num_parts)
        draws = self.stream.draws(*divmod(batch, self.stream.num_batches))
        rows = order.share(len(draws), (place, self.num_parts))
        return batch, [self.image(*draws[k]) for k in rows]

    def join(self, parts: Sequence[Part]) -> Batch:
        epoch, index = divmod(parts[0][0], self.stream.num_batches)
        records, pairs = self.records, [pair for _, part in parts for pair in part]
        if isinstance(self.augmentation, Views):
            own = [views for views, _ in pairs[self.stream.shard[1] > 1 :]]
            return ({name: np.stack([views[name] for views in own]) for name in own[0]},)
        images = self.preprocessor.stack(image for image, _ in pairs)
        labels = np.stack([label for _, label in pairs])
        if self.one_hot:
            if records.task == "single_label":
                labels = np.eye(len(records.class_names), dtype=bool)[labels]
            labels = labels.astype("float32")
        if self.one_hot or records.task == "regression":
            images, labels = self._mix(images, labels, epoch, index)
        if self.stream.shard[1] > 1:
            images, labels = images[1:], labels[1:]
        weights = self.stream.weights(index)
        return (images, labels) if weights is None else (images, labels, weights)

    def image(self, draw: int, index: int) -> tuple[Any, np.ndarray]:
        """Returns one image in the model's size and range, and its label.

        The image is `(height, width, channels)`, or its views are
        `{name: (views, height, width, channels)}`. The label may be a target `(height, width)`.
        """
        label, targets = self.records.labels[index], self.records.targets
        if targets is not None:
            label = self._augment(targets.read(label), draw)
        try:
            if isinstance(self.augmentation, Views):
                return self._make_views(self._decode(index), self.augmentation, draw), label
            pixels = read_pixels(self._augment(self._decode(index), draw))
            return self.preprocessor.scale(pixels), label
        except ConfigError as error:
            reason = self.records.name_reason(index, error)
            raise ConfigError(f"{reason} To skip it, give on_error='skip'.") from error

    def _decode(self, index: int) -> Any:
        if self.records.decoded is not None:
            return self.records.decoded[index]
        return self.preprocessor.decode(self.records.images[index])

    def _resize(self, pixels: Any) -> np.ndarray:
        """Returns an image, or a target `(height, width)`, by the preprocessor's protocol."""
        if getattr(pixels, "ndim", 3) == 3:
            return self.preprocessor.resize(pixels)
        if self.preprocessor.image_size is None:
            return pixels
        return crops.resample(pixels, self.preprocessor.find_axes(pixels.shape))

    def _augment(self, pixels: Any, draw: int) -> Any:
        """Returns an image or its target after the same random changes, in the model's size."""
        augmentation = self.augmentation
        if not isinstance(augmentation, Augmentation):
            return self._resize(pixels)
        rng = np.random.default_rng((self.stream.seed, order.IMAGE, draw))
        size = self.preprocessor.image_size
        if augmentation.crop is not None and isinstance(size, tuple):
            box = crops.random_box(read_size(pixels), augmentation.crop, augmentation.aspect, rng)
            pixels = crops.crop_and_resize(pixels, box, size)
        else:
            pixels = self._resize(pixels)
        if augmentation.flip and rng.random() < 0.5:
            pixels = crops.flip(pixels)
        if augmentation.randaugment is not None:
            layers, magnitude = augmentation.randaugment
            pixels = randaugment(_as_picture(pixels), layers, magnitude, rng)
        return pixels

    def _make_views(self, pixels: Any, augmentation: Views, draw: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng((self.stream.seed, order.IMAGE, draw))
        views = make_views(_as_picture(pixels), augmentation, rng)
        prepares = self.preprocessor
        return {
            name: prepares.stack(prepares.scale(read_pixels(view)) for view in each)
            for name, each in views.items()
        }

    def _mix(self, images: np.ndarray, labels: np.ndarray, epoch: int, index: int) -> Batch:
        augmentation = self.augmentation
        if not isinstance(augmentation, Augmentation) or not augmentation.mixes:
            return images, labels
        rng = np.random.default_rng((self.stream.seed, order.BATCH, epoch, index))
        if augmentation.mixup and (not augmentation.cutmix or rng.random() < 0.5):
            return mixing.mixup(images, labels, augmentation.mixup, rng)
        height = 1 if self.preprocessor.data_format == "channels_last" else 2
        return mixing.cutmix(images, labels, augmentation.cutmix, rng, axis=height)


def _as_picture(pixels: Any) -> Image.Image:
    """Returns a Pillow image for RandAugment and views; pixels of float arrays are rounded."""
    if isinstance(pixels, Image.Image):
        return pixels
    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels).astype(np.uint8)
    return make_picture(pixels)
