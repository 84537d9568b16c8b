"""Images of a data set as the batches that `fit`, `evaluate` and hand-written loops read."""

import copy
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
from PIL import Image

from keras_vit.data import augmentation as augmentations
from keras_vit.data import crops, mixing, order
from keras_vit.data.ahead import Ahead
from keras_vit.data.augmentation import Augmentation
from keras_vit.data.inspection import inspect
from keras_vit.data.randaugment import randaugment
from keras_vit.data.records import Records
from keras_vit.errors import ConfigError
from keras_vit.preprocessing import Preprocessor

_NAMED = 5


class ImageData(keras.utils.PyDataset):
    """Batches of a data set, prepared in threads while the model works on the one before.

    `data[i]` is a pair of float32 images `(batch, height, width, channels)` in [-1, 1],
    `(batch, channels, height, width)` for a model of that kind, and int32 labels `(batch,)`
    or float32 one-hot labels `(batch, num_classes)`. It is a pure function of the seed, of
    `data.epoch` and of `i`: two runs, or one that was resumed with `data.epoch = k`, see the
    same batches on every backend. `on_epoch_end` adds one to `data.epoch` when the last batch
    of the epoch was asked for.

    Give it to `fit` with `shuffle=False`: the images are shuffled already, and Keras's own
    shuffle of whole batches would depend on more than the seed.

    Args:
        records: images, labels and class names; `from_folder` and its siblings make them.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`, whose own is
            used, and which the data are checked against.
        batch_size: images per batch.
        augmentation: an `Augmentation`, or a name of `AUGREG`; None prepares images as
            for evaluation, by the preprocessor's protocol.
        shuffle: another order of the images in every pass; None shuffles where there is an
            augmentation or `steps_per_epoch`.
        steps_per_epoch: batches per epoch, all full, out of an endless stream of passes;
            None makes an epoch one pass, whose last batch may be smaller.
        one_hot: float32 labels `(batch, num_classes)`; mixup and cutmix imply it.
        seed: of order, split and augmentation.
        unreadable: `"raise"`, or `"skip"` to decode all images at the start and to leave out
            those that cannot be, with one warning; `data.unreadable` keeps the reasons.
        verify: decode all images at the start; otherwise headers are read, and all is
            decoded only where it is kept.
        cache: keep the decoded images in memory; `"auto"` up to half a gibibyte.
        min_size: smallest height and width of an image; None for one patch of the model.
        workers: threads that decode; None for one per processor.

    Raises:
        ConfigError: what would fail later: no images, images that cannot be read or are
            too small, a class without any, labels or channels that the model has not.

    >>> import numpy as np
    >>> from keras_vit import Preprocessor
    >>> from keras_vit.data import from_arrays
    >>> images, labels = np.zeros((10, 8, 8, 3), "uint8"), np.arange(10) % 2
    >>> data = from_arrays(images, labels, Preprocessor(16), batch_size=4)
    >>> [batch.shape for batch, _ in data]
    [(4, 16, 16, 3), (4, 16, 16, 3), (2, 16, 16, 3)]
    """

    def __init__(
        self,
        records: Records,
        preprocessor: Any,
        batch_size: int = 32,
        *,
        augmentation: Augmentation | str | None = None,
        shuffle: bool | None = None,
        steps_per_epoch: int | None = None,
        one_hot: bool = False,
        seed: int = 0,
        unreadable: str = "raise",
        verify: bool = False,
        cache: bool | str = "auto",
        min_size: int | None = None,
        workers: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("batch_size", batch_size), ("steps_per_epoch", steps_per_epoch)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}, expected at least 1.")
        if seed < 0:
            raise ConfigError(f"seed={seed}, expected 0 or more.")
        if unreadable not in ("raise", "skip"):
            raise ConfigError(f"unreadable={unreadable!r}, expected 'raise' or 'skip'.")
        model = preprocessor if hasattr(preprocessor, "preprocessor") else None
        self.preprocessor: Preprocessor = model.preprocessor if model else preprocessor
        if not isinstance(self.preprocessor, Preprocessor):
            raise ConfigError(
                f"preprocessor={preprocessor!r}, expected a keras_vit.Preprocessor or a "
                "VisionTransformer."
            )
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self.augmentation = augmentations.named(augmentation)
        self.one_hot = one_hot or bool(self.augmentation and self.augmentation.mixes)
        self.seed = seed
        self.min_size = min_size
        self.epoch = 0
        self.unreadable: dict[str, str] = {}
        self._shuffle = shuffle
        self._pool = ThreadPoolExecutor(workers or os.cpu_count() or 1, "keras_vit-images")
        self._check_augmentation()
        self._look(records, cache, verify or unreadable == "skip", unreadable)
        self._start()
        if model is not None:
            self.check(model)
        self._image(0, 0)  # what fails for one image fails for all

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class."""
        return self.records.class_names

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def num_images(self) -> int:
        """Images in the data set."""
        return len(self.records)

    @property
    def labels(self) -> np.ndarray:
        """int32 `(num_images,)`, in the order of the data set."""
        return self.records.labels

    @property
    def class_counts(self) -> dict[str, int]:
        """Class name -> images."""
        return dict(zip(self.class_names, self.records.counts.tolist(), strict=True))

    @property
    def class_weight(self) -> dict[int, float]:
        """What `fit(class_weight=...)` takes for every class to weigh the same."""
        counts = self.records.counts
        present = np.flatnonzero(counts)
        return {int(k): len(self.records) / (len(present) * int(counts[k])) for k in present}

    def __len__(self) -> int:
        return self._stream.num_batches

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index}, expected 0 to {len(self) - 1}")
        if self._in_epoch and index != self._expected:
            warnings.warn(
                "fit takes the batches in another order; give it shuffle=False. They are shuffled "
                "already, and only in their own order prepared ahead and the same in every run.",
                stacklevel=2,
            )
            self._in_epoch = False
        epoch = self.epoch
        batch = self._ahead((epoch, index))
        self._expected = index + 1
        self._complete |= index == len(self) - 1
        return batch

    def on_epoch_begin(self) -> None:
        """Called by Keras."""
        self._in_epoch, self._complete, self._expected = True, False, 0

    def on_epoch_end(self) -> None:
        """Advances `epoch`, unless Keras only looked at a batch, as `fit` does when it starts."""
        self.epoch += self._complete
        self._in_epoch = self._complete = False

    def split(self, fraction: float) -> tuple["ImageData", "ImageData"]:
        """Returns a training and a validation part, each class in both by its share.

        The parts depend on the labels, the seed and the fraction alone. The first part is
        shuffled and augmented as this one is; the second is one pass in order, prepared for
        evaluation, with labels of the same form.

        Args:
            fraction: share of the second part.

        Raises:
            ConfigError: the fraction is not between 0 and 1.
        """
        if not 0 < fraction < 1:
            raise ConfigError(f"split={fraction}, expected a share between 0 and 1.")
        first, second = order.stratified(self.labels, fraction, self.seed)
        if not len(second):
            raise ConfigError(
                f"{self.records.name}: split={fraction} needs a class of two images or more."
            )
        shuffle = self._shuffle is None or self._shuffle
        evaluation = {"augmentation": None, "steps_per_epoch": None, "_shuffle": False}
        return self._part(first, _shuffle=shuffle), self._part(second, **evaluation)

    def check(self, model: Any) -> None:
        """Raises unless a `VisionTransformer` can be trained or evaluated on these data.

        Raises:
            ConfigError: all that does not fit: size, channels, classes, images smaller
                than a patch.
        """
        config, prepared = model.config, self.preprocessor
        problems = []
        for name in ("image_size", "channels"):
            asked, found = getattr(config, name), getattr(prepared, name)
            if asked is not None and asked != found:
                problems.append(
                    f"the model takes {name}={asked}, these data are prepared for {name}={found}; "
                    "give the model itself as preprocessor"
                )
        if prepared.data_format != model.data_format:
            problems.append(f"the model takes {model.data_format}, found {prepared.data_format}")
        if config.num_classes and config.num_classes != self.num_classes:
            some = ", ".join(self.class_names[:_NAMED])
            problems.append(
                f"the model has {config.num_classes} classes, the data {self.num_classes} ({some}"
                f"{', ...' if self.num_classes > _NAMED else ''}); load the model with "
                f"num_classes={self.num_classes}"
            )
        least = config.patch_size if self.min_size is None else (self.min_size,) * 2
        problems += self._too_small(least)
        if problems:
            raise ConfigError(f"{self.records.name}: " + "; ".join(problems) + ".")

    def _too_small(self, least: tuple[int, int]) -> list[str]:
        small = [k for k, size in self._sizes.items() if size[0] < least[0] or size[1] < least[1]]
        if not small:
            return []
        height, width = self._sizes[small[0]]
        return [
            f"{self.records.where(small[0])} has {height}x{width} pixels and {len(small) - 1} more "
            f"are as small, expected at least a patch, {least[0]}x{least[1]}; leave them out, or "
            "accept them with min_size=1"
        ]

    def _check_augmentation(self) -> None:
        asked, prepared = self.augmentation, self.preprocessor
        if asked is None:
            return
        if asked.crop is not None and prepared.image_size is None:
            raise ConfigError(
                "An augmentation with a crop needs a preprocessor with an image_size, found None."
            )
        if asked.randaugment is not None and prepared.channels not in (1, 3):
            raise ConfigError(
                f"RandAugment is for 1 or 3 channels, found {prepared.channels}; give an "
                "Augmentation without."
            )

    def _look(self, records: Records, cache: bool | str, verify: bool, unreadable: str) -> None:
        """Reads what has to be known before the first step, and drops what cannot be read."""
        found = inspect(records, self.preprocessor, self._pool, cache, verify)
        kept = np.arange(len(records))
        if found.unreadable:
            reasons = list(found.unreadable.values())
            shown = " ".join(reasons[:_NAMED])
            more = f" And {len(reasons) - _NAMED} more." if len(reasons) > _NAMED else ""
            if unreadable == "raise":
                raise ConfigError(
                    f"{records.name}: {len(reasons)} of {len(records)} images cannot be read. "
                    f"{shown}{more} unreadable='skip' leaves them out."
                )
            warnings.warn(
                f"{records.name}: {len(reasons)} of {len(records)} images cannot be read and are "
                f"left out. {shown}{more}",
                stacklevel=5,
            )
            self.unreadable = {records.where(k): why for k, why in found.unreadable.items()}
            kept = np.setdiff1d(kept, list(found.unreadable))
            emptied = set(records.labels.tolist()) - set(records.labels[kept].tolist())
            if emptied:
                names = ", ".join(records.class_names[k] for k in sorted(emptied))
                raise ConfigError(f"{records.name}: no image of {names} can be read. {shown}{more}")
        self.records = records.of(kept) if found.unreadable else records
        self._decoded = found.decoded and [found.decoded[k] for k in kept]
        self._sizes = {
            place: found.sizes[k] for place, k in enumerate(kept.tolist()) if k in found.sizes
        }

    def _part(self, indices: np.ndarray, **changes: Any) -> "ImageData":
        part = copy.copy(self)
        vars(part).update(changes)
        part.records = self.records.of(indices)
        part._decoded = self._decoded and [self._decoded[k] for k in indices]
        part._sizes = {
            place: self._sizes[k] for place, k in enumerate(indices.tolist()) if k in self._sizes
        }
        part._start()
        return part

    def _start(self) -> None:
        shuffle = self._shuffle
        if shuffle is None:
            shuffle = self.augmentation is not None or self.steps_per_epoch is not None
        self._stream = order.Stream(
            self.num_images, self.batch_size, self.steps_per_epoch, shuffle, self.seed
        )
        self._ahead = Ahead(lambda key: self._batch(*key), self._following)
        self._in_epoch = self._complete = False
        self._expected = 0

    def _following(self, key: tuple[int, int]) -> list[tuple[int, int]]:
        """The two batches after one, where they are read in order."""
        epoch, index = key
        if index not in (0, self._expected):
            return []
        numbers = (epoch * len(self) + index + step for step in (1, 2))
        return [divmod(number, len(self)) for number in numbers]

    def _batch(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        draws = self._stream.draws(epoch, index)
        # A few images per task: small ones would be outweighed by the handing over.
        step = max(1, len(draws) // (4 * self._pool._max_workers))
        parts = [draws[k : k + step] for k in range(0, len(draws), step)]
        prepared = self._pool.map(lambda part: [self._image(*draw) for draw in part], parts)
        images = self.preprocessor.stack(image for part in prepared for image in part)
        labels = self.records.labels[[k for _, k in draws]]
        if not self.one_hot:
            return images, labels
        one_hot = np.zeros((len(labels), self.num_classes), np.float32)
        one_hot[np.arange(len(labels)), labels] = 1
        return self._mixed(images, one_hot, epoch, index)

    def _mixed(
        self, images: np.ndarray, labels: np.ndarray, epoch: int, index: int
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.augmentation is None or not self.augmentation.mixes:
            return images, labels
        alphas = (self.augmentation.mixup, self.augmentation.cutmix)
        rng = np.random.default_rng((self.seed, order.BATCH, epoch, index))
        if alphas[0] and (not alphas[1] or rng.random() < 0.5):
            return mixing.mixup(images, labels, alphas[0], rng)
        first = 1 if self.preprocessor.data_format == "channels_last" else 2
        return mixing.cutmix(images, labels, alphas[1], rng, spatial=first)

    def _image(self, draw: int, index: int) -> np.ndarray:
        """One image as the model reads it, `(height, width, channels)`."""
        if self._decoded:
            pixels = self._decoded[index]
        else:
            try:
                pixels = self.preprocessor.decode(self.records.images[index])
            except ConfigError as error:
                where = self.records.where(index)
                raise ConfigError(
                    f"{'' if where in str(error) else where + ': '}{error} "
                    "unreadable='skip' leaves it out."
                ) from error
        if self.augmentation is None:
            return self.preprocessor.scale(self.preprocessor.resize(pixels))
        return self.preprocessor.scale(self._augmented(pixels, draw))

    def _augmented(self, pixels: Any, draw: int) -> np.ndarray:
        """One image at the model's size, in [0, 255], changed as of its draw."""
        asked = self.augmentation
        rng = np.random.default_rng((self.seed, order.IMAGE, draw))
        if asked.crop is None:
            pixels = self.preprocessor.resize(pixels)
        else:
            size = crops.size_of(pixels)
            box = crops.random_box(size, asked.crop, asked.aspect, rng)
            pixels = crops.crop_and_resize(pixels, box, self.preprocessor.image_size)
        if asked.flip and rng.random() < 0.5:
            pixels = crops.flipped(pixels)
        if asked.randaugment is not None:
            pixels = randaugment(_picture(pixels), *asked.randaugment, rng)
        pixels = np.asarray(pixels)
        return pixels[..., None] if pixels.ndim == 2 else pixels


def _picture(pixels: Any) -> Image.Image:
    if isinstance(pixels, Image.Image):
        return pixels
    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels).astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))
