"""Images of a data set as the batches that `fit`, `evaluate` and hand-written loops read."""

import copy
import dataclasses
import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np

from keras_vit.data import augmentation as augmentations
from keras_vit.data import order
from keras_vit.data.ahead import Ahead
from keras_vit.data.augmentation import Augmentation
from keras_vit.data.inspection import Inspected, inspect
from keras_vit.data.misfits import misfits
from keras_vit.data.pipeline import Batch, Pipeline
from keras_vit.data.records import Records
from keras_vit.errors import ConfigError
from keras_vit.preparation.preprocessor import Preprocessor


class ImageData(keras.utils.PyDataset):
    """Batches of a data set, prepared in threads while the model works on the one before.

    `data[i]` is a pair of float32 images `(batch, height, width, channels)` in [-1, 1],
    `(batch, channels, height, width)` for a model of that kind, and int32 labels `(batch,)`
    or float32 one-hot labels `(batch, num_classes)`. It is a pure function of the seed, of
    `data.epoch` and of `i`: two runs, or one that was resumed with `data.epoch = k`, see the
    same batches on every backend. `on_epoch_end` adds one to `data.epoch`.

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

    epoch: int
    _in_epoch: bool  # between on_epoch_begin and on_epoch_end
    _expected: int  # the batch after the last one that was asked for

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
        preprocessor = model.preprocessor if model is not None else preprocessor
        if not isinstance(preprocessor, Preprocessor):
            raise ConfigError(
                f"preprocessor={preprocessor!r}, expected a keras_vit.Preprocessor or a "
                "VisionTransformer."
            )
        threads = workers or os.cpu_count() or 1
        pool = ThreadPoolExecutor(threads, "keras_vit-images")
        images = inspect(
            records, preprocessor, pool, unreadable=unreadable, verify=verify, cache=cache
        )
        asked = augmentations.named(augmentation)
        one_hot = one_hot or (asked is not None and asked.mixes)
        self._min_size = min_size
        self._shuffle = shuffle
        self._serve(
            Pipeline(images, preprocessor, asked, one_hot, seed, pool, threads),
            batch_size,
            steps_per_epoch,
        )
        if model is not None:
            self.check(model)

    @property
    def preprocessor(self) -> Preprocessor:
        """What prepares the images."""
        return self._pipeline.preprocessor

    @property
    def augmentation(self) -> Augmentation | None:
        """What changes them, if anything."""
        return self._pipeline.augmentation

    @property
    def batch_size(self) -> int:
        """Images per batch."""
        return self._stream.batch_size

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches per epoch, where an epoch is not one pass."""
        return self._stream.steps_per_epoch

    @property
    def one_hot(self) -> bool:
        """Whether labels are float32 `(batch, num_classes)`."""
        return self._pipeline.one_hot

    @property
    def seed(self) -> int:
        """Of order, split and augmentation."""
        return self._pipeline.seed

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class."""
        return self._images.records.class_names

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def num_images(self) -> int:
        """Images in the data set."""
        return len(self._images.records)

    @property
    def labels(self) -> np.ndarray:
        """int32 `(num_images,)`, in the order of the data set."""
        return self._images.records.labels

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The files of the images, in the order of the data set; None where they are not files."""
        images = self._images.records.images
        return tuple(map(str, images)) if isinstance(images[0], (str, os.PathLike)) else None

    @property
    def unreadable(self) -> dict[str, str]:
        """Image that was left out -> reason."""
        return self._images.unreadable

    @property
    def class_counts(self) -> dict[str, int]:
        """Class name -> images."""
        return dict(zip(self.class_names, self._images.records.counts.tolist(), strict=True))

    @property
    def class_weight(self) -> dict[int, float]:
        """What `fit(class_weight=...)` takes for every class to weigh the same."""
        counts = self._images.records.counts
        present = np.flatnonzero(counts)
        return {int(k): self.num_images / (len(present) * int(counts[k])) for k in present}

    def __len__(self) -> int:
        return self._stream.num_batches

    def __getitem__(self, index: int) -> Batch:
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
        return batch

    def on_epoch_begin(self) -> None:
        """Called by Keras."""
        self._in_epoch, self._expected = True, 0

    def on_epoch_end(self) -> None:
        """Advances `epoch`; called by Keras, or at the end of each epoch of a hand-written loop."""
        self._in_epoch = False
        # Before its first epoch `fit` looks at one batch, and says by this call alone, from
        # `EpochIterator.reset`, that it will start again; TensorFlow has read on by then.
        self.epoch += not _called_by("reset")

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
                f"{self._images.records.name}: split={fraction} needs a class of two images."
            )
        train, validation = copy.copy(self), copy.copy(self)
        train._shuffle = self._shuffle is None or self._shuffle
        train._serve(
            dataclasses.replace(self._pipeline, images=self._images.of(first)),
            self.batch_size,
            self.steps_per_epoch,
        )
        validation._shuffle = False
        validation._serve(
            dataclasses.replace(self._pipeline, images=self._images.of(second), augmentation=None),
            self.batch_size,
        )
        return train, validation

    def check(self, model: Any) -> None:
        """Raises unless a `VisionTransformer` can be trained or evaluated on these data.

        Raises:
            ConfigError: all that does not fit: size, channels, classes, images smaller
                than a patch.
        """
        problems = misfits(model, self.preprocessor, self._images, self._min_size)
        if problems:
            raise ConfigError(f"{self._images.records.name}: " + "; ".join(problems) + ".")

    def _serve(
        self, pipeline: Pipeline, batch_size: int, steps_per_epoch: int | None = None
    ) -> None:
        """Starts at epoch 0 with these batches."""
        shuffle = self._shuffle
        if shuffle is None:
            shuffle = pipeline.augmentation is not None or steps_per_epoch is not None
        self._pipeline = pipeline
        self._images: Inspected = pipeline.images
        self._stream = order.Stream(
            len(pipeline.images.records), batch_size, steps_per_epoch, shuffle, pipeline.seed
        )
        self._ahead: Ahead[tuple[int, int], Batch] = Ahead(self._batch, self._following)
        self.epoch = 0
        self._in_epoch = False
        self._expected = 0

    def _batch(self, key: tuple[int, int]) -> Batch:
        return self._pipeline.batch(self._stream.draws(*key), *key)

    def _following(self, key: tuple[int, int]) -> list[tuple[int, int]]:
        """The two batches after one, where they are read in order."""
        epoch, index = key
        if index not in (0, self._expected):
            return []
        numbers = (epoch * len(self) + index + step for step in (1, 2))
        return [divmod(number, len(self)) for number in numbers]


def _called_by(name: str) -> bool:
    """Whether Keras's data adapter was called by this function, two frames above the caller."""
    frame = sys._getframe(1)
    for _ in range(2):
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return frame.f_code.co_name == name
