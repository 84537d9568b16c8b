"""From the numbers of images to a batch: decode, crop, flip, RandAugment, scale, stack, mix."""

import dataclasses
from typing import Any

import numpy as np
from PIL import Image

from keras_vit.data import crops, mixing, order
from keras_vit.data.augmentation import Augmentation
from keras_vit.data.inspection import Inspected
from keras_vit.data.randaugment import randaugment
from keras_vit.data.threads import Threads
from keras_vit.errors import ConfigError
from keras_vit.images.preprocessor import Preprocessor
from keras_vit.images.resampling import size_of

Batch = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Prepares batches; its random numbers depend on the seed and the number of a draw alone.

    Args:
        images: the data set.
        preprocessor: decodes, resizes and scales the images.
        augmentation: random changes for training; None for the preprocessor's protocol.
        one_hot: whether labels are one-hot rows.
        seed: seed of the augmentation.
        pool: threads for the images.

    Raises:
        ConfigError: the augmentation cannot be applied to these images.
    """

    images: Inspected
    preprocessor: Preprocessor
    augmentation: Augmentation | None
    one_hot: bool
    seed: int
    pool: Threads

    def __post_init__(self) -> None:
        asked, prepared = self.augmentation, self.preprocessor
        if asked is not None and asked.crop is not None and prepared.image_size is None:
            raise ConfigError(
                "A random crop is resized to the preprocessor's image_size, found None; give a "
                "preprocessor with an image_size, or an Augmentation with crop=None."
            )
        if asked is not None and asked.randaugment and prepared.channels not in (1, 3):
            raise ConfigError(
                f"RandAugment is for 1 or 3 channels, found {prepared.channels}; give an "
                "Augmentation with randaugment=None."
            )

    def of(self, images: Inspected) -> "Pipeline":
        """Returns the same pipeline for other images."""
        return dataclasses.replace(self, images=images)

    def batch(
        self,
        draws: list[tuple[int, int]],
        epoch: int,
        index: int,
        shard: tuple[int, int] = (0, 1),
    ) -> Batch:
        """Returns the images and labels of a shard of a batch.

        Args:
            draws: number of the draw and index of the image, one pair per image of the batch.
            epoch, index: epoch and number of the batch, for random numbers per batch.
            shard: number of the shard, and of all shards.
        """
        rows = order.share(len(draws), shard)
        if len(rows) == len(draws):
            return self._prepared(draws, epoch, index)
        # Mixing needs the predecessor of the first row; an empty shard takes any image's shape.
        start = rows.start - 1 if rows.start else len(draws) - 1
        images, labels = self._prepared([draws[start], *(draws[k] for k in rows)], epoch, index)
        return images[1:], labels[1:]

    def _prepared(self, draws: list[tuple[int, int]], epoch: int, index: int) -> Batch:
        # A task prepares several images: handing over a small image takes longer than preparing it.
        step = max(1, len(draws) // (4 * self.pool.count))
        parts = [draws[k : k + step] for k in range(0, len(draws), step)]
        prepared = self.pool.map(lambda part: [self.image(*draw) for draw in part], parts)
        images = self.preprocessor.stack(image for part in prepared for image in part)
        records = self.images.records
        labels = records.labels[[k for _, k in draws]]
        if not self.one_hot:
            return images, labels
        one_hot = np.zeros((len(labels), len(records.class_names)), np.float32)
        one_hot[np.arange(len(labels)), labels] = 1
        return self._mixed(images, one_hot, epoch, index)

    def image(self, draw: int, index: int) -> np.ndarray:
        """Returns one image in the model's size and range, `(height, width, channels)`."""
        pixels = self._pixels(index)
        if self.augmentation is None:
            pixels = self.preprocessor.resize(pixels)
        else:
            pixels = self._augmented(self.augmentation, pixels, draw)
        return self.preprocessor.scale(pixels)

    def _pixels(self, index: int) -> Any:
        if self.images.decoded is not None:
            return self.images.decoded[index]
        records = self.images.records
        try:
            return self.preprocessor.decode(records.images[index])
        except ConfigError as error:
            where = records.where(index)
            where = "" if where in str(error) else f"{where}: "
            raise ConfigError(f"{where}{error} unreadable='skip' leaves it out.") from error

    def _augmented(self, asked: Augmentation, pixels: Any, draw: int) -> np.ndarray:
        """Returns the image after random changes, in the model's size and in [0, 255]."""
        rng = np.random.default_rng((self.seed, order.IMAGE, draw))
        size = self.preprocessor.image_size
        if asked.crop is not None and isinstance(size, tuple):
            box = crops.random_box(size_of(pixels), asked.crop, asked.aspect, rng)
            pixels = crops.crop_and_resize(pixels, box, size)
        else:
            pixels = self.preprocessor.resize(pixels)
        if asked.flip and rng.random() < 0.5:
            pixels = crops.flipped(pixels)
        if asked.randaugment is not None:
            layers, magnitude = asked.randaugment
            pixels = randaugment(_picture(pixels), layers, magnitude, rng)
        pixels = np.asarray(pixels)
        return pixels[..., None] if pixels.ndim == 2 else pixels

    def _mixed(self, images: np.ndarray, labels: np.ndarray, epoch: int, index: int) -> Batch:
        asked = self.augmentation
        if asked is None or not asked.mixes:
            return images, labels
        rng = np.random.default_rng((self.seed, order.BATCH, epoch, index))
        if asked.mixup and (not asked.cutmix or rng.random() < 0.5):
            return mixing.mixup(images, labels, asked.mixup, rng)
        height = 1 if self.preprocessor.data_format == "channels_last" else 2
        return mixing.cutmix(images, labels, asked.cutmix, rng, axis=height)


def _picture(pixels: Any) -> Image.Image:
    """Returns the Pillow image that RandAugment takes; pixels of float arrays are rounded."""
    if isinstance(pixels, Image.Image):
        return pixels
    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels).astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))
