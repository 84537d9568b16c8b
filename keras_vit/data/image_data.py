"""Images of a data set as the batches that `fit`, `evaluate` and hand-written loops read."""

import copy
import dataclasses
import os
from typing import Any

import keras
import numpy as np

from keras_vit.data import augmentation as augmentations
from keras_vit.data import order
from keras_vit.data.arguments import checked_preprocessor, checked_shard
from keras_vit.data.augmentation import Augmentation
from keras_vit.data.compatibility import incompatibilities
from keras_vit.data.epoch_count import EpochCount
from keras_vit.data.inspection import Inspected, inspect
from keras_vit.data.options import Prepares
from keras_vit.data.pipeline import Batch, Pipeline
from keras_vit.data.prefetch import Prefetch
from keras_vit.data.records import Records
from keras_vit.data.threads import Threads
from keras_vit.errors import ConfigError
from keras_vit.images.preprocessor import Preprocessor
from keras_vit.text import warn


class ImageData(keras.utils.PyDataset):
    """Batches of a data set, prepared in threads while the model computes the previous batch.

    `data[i]` is a pair of float32 images `(batch, height, width, channels)` in [-1, 1],
    `(batch, channels, height, width)` for a channels-first model, and int32 labels `(batch,)`
    or float32 one-hot labels `(batch, num_classes)`. The batch is a pure function of the seed, of
    `data.epoch` and of `i`. Two runs therefore see the same batches on every backend, and so does
    a run that was resumed with `data.epoch = k`.

    Give the data to `fit` with `shuffle=False`: the images are shuffled already, and Keras's own
    shuffle of whole batches would depend on more than the seed. `fit` and `evaluate` advance
    `data.epoch` by one at the end of each pass. A training loop of your own, or a wrapper that
    `fit` is given in place of the data, sets `data.epoch`.

    Args:
        records: images, labels and class names; `from_folder` and its siblings make them.
        preprocessor: a `keras_vit.Preprocessor`; or a `VisionTransformer`: the data then use its
            preprocessor and are checked against the model.
        batch_size: images per batch.
        augmentation: an `Augmentation`, or a name of `AUGREG`; None prepares images as
            for evaluation, by the preprocessor's protocol.
        shuffle: whether every pass has another order of the images; None shuffles if
            `augmentation` or `steps_per_epoch` is given.
        steps_per_epoch: batches per epoch, all full, from an endless stream of passes;
            None makes an epoch one pass, whose last batch may be smaller.
        one_hot: float32 labels `(batch, num_classes)`; mixup and cutmix imply it.
        seed: seed of order, validation split and augmentation, an int of at least 0.
        unreadable: `"raise"`; or `"skip"` to decode all images at the start and to leave out
            unreadable images, with one warning. `data.unreadable` keeps the reasons.
        verify: whether all images are decoded at the start, even without a cache. Otherwise
            only the headers of files are read.
        cache: whether decoded images stay in memory; `"auto"` keeps up to half a gibibyte.
        min_size: smallest height and width of an image in pixels; None for one patch of the model.
        threads: number of threads that decode; None for one per processor.
        shard: `(index, count)`: the data give every batch's share of one of `count` processes;
            `batch_size` stays the number of images of all. The shares of all processes are the
            batches of one process, bit by bit. None for the share of this process, see
            `keras_vit.distribution.data_shard`, if the data are shuffled; data in order, such as
            those for evaluation, are then whole in every process.

    Raises:
        ConfigError: the data set is empty, an image cannot be read or is too small, a class
            has no images, labels or channels do not fit the model, or the processes do not divide
            the batches.

    >>> import numpy as np
    >>> from keras_vit import Preprocessor
    >>> from keras_vit.data import from_arrays
    >>> images, labels = np.zeros((10, 8, 8, 3), "uint8"), np.arange(10) % 2
    >>> data = from_arrays(images, labels, Preprocessor(16), batch_size=4)
    >>> [batch.shape for batch, _ in data]
    [(4, 16, 16, 3), (4, 16, 16, 3), (2, 16, 16, 3)]
    """

    epoch: int
    _warns_of_order: bool
    _expected: int  # number of the batch after the last one that was read

    def __init__(
        self,
        records: Records,
        preprocessor: Prepares,
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
        threads: int | None = None,
        shard: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        prepares, model = checked_preprocessor(preprocessor, batch_size, steps_per_epoch, seed)
        if unreadable not in ("raise", "skip"):
            raise ConfigError(f"unreadable={unreadable!r}, expected 'raise' or 'skip'.")
        pool = Threads(threads or os.cpu_count() or 1)
        images = inspect(records, prepares, pool, unreadable=unreadable, verify=verify, cache=cache)
        asked = augmentations.named(augmentation)
        one_hot = one_hot or (asked is not None and asked.mixes)
        self._min_size = min_size
        self._shuffle = shuffle
        self._asked_shard = shard
        self._serve(
            Pipeline(images, prepares, asked, one_hot, seed, pool), batch_size, steps_per_epoch
        )
        self._pipeline.image(0, 0)  # an augmentation that fails on such images fails here
        if model is not None:
            self.check(model)

    @property
    def preprocessor(self) -> Preprocessor:
        """The `Preprocessor` that prepares the images."""
        return self._pipeline.preprocessor

    @property
    def augmentation(self) -> Augmentation | None:
        """The augmentation of the images; None for evaluation data."""
        return self._pipeline.augmentation

    @property
    def batch_size(self) -> int:
        """Images per batch."""
        return self._stream.batch_size

    @property
    def shard(self) -> tuple[int, int]:
        """Number of the share of every batch that these data give, and of all shares."""
        return self._shard

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches per epoch; None if an epoch is one pass."""
        return self._stream.steps_per_epoch

    @property
    def one_hot(self) -> bool:
        """Whether labels are float32 `(batch, num_classes)`."""
        return self._pipeline.one_hot

    @property
    def seed(self) -> int:
        """Seed of order, validation split and augmentation."""
        return self._pipeline.seed

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the labels."""
        return self._images.records.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def num_images(self) -> int:
        """Number of images in the data set."""
        return len(self._images.records)

    @property
    def labels(self) -> np.ndarray:
        """The labels, int32 `(num_images,)`, in the order of the data set."""
        return self._images.records.labels

    @property
    def paths(self) -> tuple[str, ...] | None:
        """Files of the images, in the order of the data set; None for images in memory."""
        images = self._images.records.images
        return tuple(map(str, images)) if isinstance(images[0], (str, os.PathLike)) else None

    @property
    def unreadable(self) -> dict[str, str]:
        """The images that were left out, by name, and the reason for each."""
        return self._images.unreadable

    @property
    def class_counts(self) -> dict[str, int]:
        """The number of images of each class, by class name."""
        return dict(zip(self.class_names, self._images.records.counts.tolist(), strict=True))

    @property
    def class_weight(self) -> dict[int, float]:
        """Weights for `fit(class_weight=...)` that give every class the same total weight."""
        counts = self._images.records.counts
        present = np.flatnonzero(counts)
        return {int(k): self.num_images / (len(present) * int(counts[k])) for k in present}

    def __len__(self) -> int:
        return self._stream.num_batches

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index}, expected 0 to {len(self) - 1}")
        in_order = index in (0, self._expected)
        if self._warns_of_order and not in_order:
            self._warn_of_order()
            self._warns_of_order = False
        batch = self._prefetch((self.epoch, index))
        self._expected = index + 1
        self._count.batch_read(is_last=index == len(self) - 1)
        return batch

    def on_epoch_begin(self) -> None:
        """Called by Keras before each epoch.

        Raises:
            ConfigError: a subclass overrides `on_epoch_end` and does not call it here; or the
                processes do not divide the last batch of a training, or have different data.
        """
        shards = self._shard[1]
        rest = len(self._stream.draws(0, len(self) - 1)) % shards
        if self._is_shuffled and rest:
            raise ConfigError(
                f"{shards} processes do not divide the last batch of an epoch, whose images would "
                "then count differently. Give steps_per_epoch, which makes all batches full."
            )
        self._warns_of_order = True
        self._count.epoch_begins()

    def on_epoch_end(self) -> None:
        """Advances `epoch` if a pass has ended; called by Keras.

        Raises:
            ConfigError: the caller is a wrapper or a training loop, which must set `data.epoch`.
        """
        self._warns_of_order = False
        self.epoch += self._count.on_epoch_end()

    @property
    def workers(self) -> int:
        """Threads of Keras that read batches: always 1, since `ImageData` has threads of its own.

        Keras reads this property when a run on the data begins; see `EpochCount`.
        """
        self._count.run_begins()
        return 1

    @workers.setter
    def workers(self, value: int) -> None:
        raise ConfigError(
            f"workers={value}: Keras's workers would read the batches out of order. The batches "
            "are prepared in threads already; their number is the argument threads= of ImageData."
        )

    @property
    def use_multiprocessing(self) -> bool:
        """False: Keras starts no processes that read batches."""
        return False

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: bool) -> None:
        raise ConfigError(
            f"use_multiprocessing={value}: Keras's processes would read the batches out of order. "
            "The batches are prepared in threads already."
        )

    def hold_out(self, validation_split: float) -> tuple["ImageData", "ImageData"]:
        """Returns training and validation data, with the same share of every class.

        The parts depend on the labels, the seed and `validation_split` alone. The training data
        are shuffled and augmented as these data are. The validation data are one pass in order,
        prepared for evaluation, with labels of the same form.

        Args:
            validation_split: share of the validation data, between 0 and 1.

        Raises:
            ConfigError: the share is not between 0 and 1, or every class has one image.
        """
        if not 0 < validation_split < 1:
            raise ConfigError(
                f"validation_split={validation_split}, expected a share between 0 and 1."
            )
        first, second = order.stratified(self.labels, validation_split, self.seed)
        if not len(second):
            raise ConfigError(
                f"{self._images.records.name}: validation_split={validation_split} needs a class "
                "of at least two images."
            )
        train, validation = copy.copy(self), copy.copy(self)
        train._shuffle = self._shuffle is None or self._shuffle
        train._serve(
            self._pipeline.of(self._images.of(first)),
            self.batch_size,
            self.steps_per_epoch,
        )
        validation._shuffle, validation._asked_shard = False, None
        validation._serve(
            dataclasses.replace(self._pipeline, images=self._images.of(second), augmentation=None),
            self.batch_size,
        )
        return train, validation

    def in_epochs_of(self, steps_per_epoch: int) -> "ImageData":
        """Returns the same data in epochs of `steps_per_epoch` full batches.

        Args:
            steps_per_epoch: batches per epoch, out of an endless stream of shuffled passes.

        Raises:
            ConfigError: the number is below 1.
        """
        if steps_per_epoch < 1:
            raise ConfigError(f"steps_per_epoch={steps_per_epoch}, expected at least 1.")
        data = copy.copy(self)
        data._serve(self._pipeline, self.batch_size, steps_per_epoch)
        return data

    def to_grain(self, epochs: int = 1) -> Any:
        """Returns the batches of epochs 0 to `epochs` - 1 as a `grain.MapDataset`.

        Batch `i` of epoch `e` has the number `e * len(data) + i` and is the batch of `data`, bit by
        bit, with its shuffling, augmentation and shard. Worker processes of Grain may prepare it::

            batches = data.to_grain(epochs=10).to_iter_dataset()
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=4))
            model.fit(batches, epochs=10, steps_per_epoch=len(data))

        Before, `absl.flags.FLAGS.mark_as_parsed()`, unless absl runs the program.

        Args:
            epochs: number of epochs.

        Raises:
            ConfigError: Grain is not installed, or `epochs` is below 1.
        """
        from keras_vit.data.grain_source import map_dataset

        return map_dataset(self._pipeline, self._stream, self._shard, epochs)

    def check(self, model: Any) -> None:
        """Raises unless a `VisionTransformer` can be trained or evaluated on these data.

        Raises:
            ConfigError: size, channels or classes differ, or images are smaller than a patch;
                the message names every difference.
        """
        problems = incompatibilities(model, self.preprocessor, self._images, self._min_size)
        if problems:
            raise ConfigError(f"{self._images.records.name}: " + "; ".join(problems) + ".")

    def _serve(
        self, pipeline: Pipeline, batch_size: int, steps_per_epoch: int | None = None
    ) -> None:
        """Makes the object serve these batches, from epoch 0 on."""
        shuffle = self._shuffle
        if shuffle is None:
            shuffle = pipeline.augmentation is not None or steps_per_epoch is not None
        self._pipeline = pipeline
        self._images: Inspected = pipeline.images
        self._stream = order.Stream(
            self.num_images,
            batch_size,
            steps_per_epoch,
            shuffle,
            pipeline.seed,
        )
        self._is_shuffled = shuffle
        self._shard = checked_shard(self._asked_shard, shuffle, batch_size)
        self._prefetch: Prefetch[tuple[int, int], Batch] = Prefetch(self._batch, self._following, 2)
        self._count = EpochCount()
        self.epoch = 0
        self._warns_of_order = False
        self._expected = 0

    def _warn_of_order(self) -> None:
        warn(
            "fit takes the batches in another order; give it shuffle=False. The images are "
            "shuffled already, and only batches in order are prepared ahead and repeatable.",
        )

    def _batch(self, key: tuple[int, int]) -> Batch:
        return self._pipeline.batch(self._stream.draws(*key), *key, self._shard)

    def _following(self, key: tuple[int, int]) -> list[tuple[int, int]]:
        """The next two batches if the batches are read in order, else an empty list."""
        return self._stream.following(*key) if key[1] in (0, self._expected) else []
