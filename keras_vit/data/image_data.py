"""`ImageData`: the batches of a data set for `fit`, `evaluate` and custom training loops."""

import copy
import dataclasses
import math
import os
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import keras
import numpy as np

from keras_vit.config import Task
from keras_vit.config.rules import COUNT, Values
from keras_vit.config.views import Views
from keras_vit.data import order
from keras_vit.data.augmentation import AnyAugmentation, Augmentation, find_augmentation
from keras_vit.data.inspection import fits_task, inspect, list_differences
from keras_vit.data.pipeline import Batch, Pipeline
from keras_vit.data.records import CLASSIFICATION, Records
from keras_vit.distribution.processes import batch_parts, data_shard
from keras_vit.errors import ConfigError, described, expect_model
from keras_vit.images.preprocessor import Preprocessor
from keras_vit.support.arguments import OnError, check_on_error
from keras_vit.support.text import counted, warn

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer


HELD_OUT = Values(lambda part: 0 < part < 1, "a number between 0 and 1")
"""Fractions of the data that can be held out for validation."""
Prepares: TypeAlias = "Preprocessor | VisionTransformer"
"""Type of the argument `preprocessor`: a preprocessor, or a model that has one."""


class Options(TypedDict, total=False):
    """Optional arguments of `ImageData`, which the `from_*` functions pass on."""

    augmentation: AnyAugmentation
    shuffle: bool | None
    steps_per_epoch: int | None
    one_hot: bool
    seed: int
    on_error: OnError
    cache: bool | str
    min_size: int | None
    threads: int | None
    shard: tuple[int, int] | None


class ImageData(keras.utils.PyDataset):
    """Batches of images for `fit` and `evaluate`, prepared in threads while the model computes.

    `data[i]` is a pair of images and labels. The images are float32
    `(batch, height, width, channels)` in [-1, 1], or `(batch, channels, height, width)` for a
    channels-first model. The labels depend on the task:

    - single label: int32 `(batch,)`, or float32 one-hot `(batch, num_classes)`;
    - multi-label: float32 zeros and ones `(batch, num_classes)`;
    - regression: float32 targets `(batch, outputs)`, which mixup and cutmix mix like one-hot
      labels;
    - segmentation and depth: `(batch, height, width)`, int32 classes or float32 depths.

    A batch is a pure function of the seed, of `data.epoch` and of `i`. Two runs therefore see the
    same batches on every backend, and so does a run that was resumed with `data.epoch = k`.

    Devices and processes divide each batch evenly. If they do not divide the last one, it is filled
    up with copies of an image, and batches have sample weights as a third array: 0 for the copies.
    The loss and `weighted_metrics`, such as those of the recipes, then count every image once.

    Give the data to `fit` with `shuffle=False`: the images are shuffled already, and Keras's own
    shuffle of whole batches would depend on more than the seed. `fit` and `evaluate` advance
    `data.epoch` by one at the end of each pass: when Keras has called `on_epoch_begin`, read all
    batches and calls `on_epoch_end`. Where an epoch is one batch, and under a strategy of
    TensorFlow, the batches that Keras reads to infer the shapes of a new model count as a pass. A
    custom training loop, or a wrapper that does not forward these calls, sets `data.epoch`, as
    `keras_vit.training.Resume` does.

    Args:
        records: images, labels and class names; `from_folder` and its siblings make them.
        preprocessor: a `keras_vit.Preprocessor`; or a `VisionTransformer`: the data then use its
            preprocessor and are checked against the model. Their labels get the order of its
            `class_names`, which are compared without regard to case and Unicode form; a model
            without names takes those of the data.
        batch_size: images per batch.
        augmentation: an `Augmentation`, or a name of `AUGREG`; None or `"none"` prepares images as
            for evaluation, by the preprocessor's protocol. `Views` make batches for
            `keras_vit.training.SelfSupervised`: a tuple of one dict, `{"global_views": float32
            (batch, views, height, width, channels), "local_views": ...}`, without labels. These
            batches are full, and the images are at least as large as a local view.
        shuffle: whether every pass has its own order of the images; None shuffles if
            `augmentation` or `steps_per_epoch` is given.
        steps_per_epoch: batches per epoch, all full, from an endless stream of passes;
            None makes an epoch one pass, whose last batch may be smaller.
        one_hot: float32 labels `(batch, num_classes)` of a single label; mixup, cutmix and
            multi-label data imply it.
        seed: seed of order, validation split and augmentation, an int of at least 0.
        on_error: what happens to images that cannot be read, or are too small, large or thin.
            `"raise"` raises an error; `"skip"` skips them with one warning; a function skips them
            and is called with the name and the error of each. To skip images, all are decoded at
            the start. `data.unreadable` keeps the reasons.
        cache: whether decoded images stay in memory; `"auto"` keeps up to half a gibibyte. Without
            a cache, only the headers of files are read at the start.
        min_size: smallest height and width of an image in pixels; None for one patch of the model.
        threads: number of threads that decode; None for one per processor.
        shard: `(index, count)`: the data yield the part `index` of every batch, for one of `count`
            processes; `batch_size` stays that of all processes together. Joined, their parts are
            the batches of one process, bit by bit. None takes the part of this process if the data
            are shuffled, see `keras_vit.distribution.data_shard`; data in order, such as those for
            evaluation, are then complete in every process.

    Raises:
        ConfigError: the data set is empty; an image cannot be read or is too small; a class has no
            images; labels, class names or channels do not fit the model; or devices or processes do
            not divide `batch_size`.

    >>> import numpy as np
    >>> from keras_vit import Preprocessor
    >>> from keras_vit.data import from_arrays
    >>> images, labels = np.zeros((10, 8, 8, 3), "uint8"), np.arange(10) % 2
    >>> data = from_arrays(images, labels, Preprocessor(16), batch_size=4)
    >>> [batch.shape for batch, _ in data]
    [(4, 16, 16, 3), (4, 16, 16, 3), (2, 16, 16, 3)]
    """

    epoch: int
    """The number of the pass, or of `steps_per_epoch` batches, that `data[i]` belongs to."""

    _coming: Iterator[Batch] | None
    _next_number: int  # of the batch after the last one that was read
    _read: set[int]  # indices of the batches of this pass

    def __init__(
        self,
        records: Records,
        preprocessor: Prepares,
        batch_size: int = 32,
        *,
        augmentation: AnyAugmentation = None,
        shuffle: bool | None = None,
        steps_per_epoch: int | None = None,
        one_hot: bool = False,
        seed: int = 0,
        on_error: OnError = "raise",
        cache: bool | str = "auto",
        min_size: int | None = None,
        threads: int | None = None,
        shard: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        COUNT.check("batch_size", batch_size)
        COUNT.check("steps_per_epoch", 1 if steps_per_epoch is None else steps_per_epoch)
        if seed < 0:
            raise ConfigError(f"seed={seed}, expected 0 or more.")
        check_on_error(on_error)
        prepares = getattr(preprocessor, "preprocessor", preprocessor)
        if not isinstance(prepares, Preprocessor):
            raise ConfigError(
                f"preprocessor={prepares!r}, expected a keras_vit.Preprocessor or a "
                "VisionTransformer."
            )
        threads = threads or os.cpu_count() or 1
        model = None if prepares is preprocessor else expect_model(preprocessor)
        least = (min_size or 1,) * 2 if model is None or min_size else model.config.patch_size
        changes = find_augmentation(augmentation)
        if isinstance(changes, Views):
            changes = changes.fit(model and model.config)
            least = (min_size or min(size for _, size, _ in changes.groups.values()),) * 2
        if model is not None and fits_task(model, records):
            records = records.in_order_of(model.class_names)
        records = inspect(records, prepares, threads, on_error, cache, least)
        if isinstance(changes, Views):
            if len(records) < batch_size:
                raise ConfigError(
                    f"{records.name}: {counted(len(records), 'image')}, fewer than a batch. Views "
                    f"of different images are compared: give batch_size={len(records)} or less, or "
                    "more images."
                )
            steps_per_epoch = steps_per_epoch or len(records) // batch_size
        mixes = isinstance(changes, Augmentation) and changes.mixes
        are_rows = (one_hot or mixes) and records.task != "regression"
        one_hot = are_rows or records.task == "multi_label"
        self._min_size = min_size
        self._shuffle, self._shard = shuffle, shard
        if shuffle is None:
            shuffle = changes is not None or steps_per_epoch is not None
        stream = order.Stream(len(records), batch_size, steps_per_epoch, shuffle, seed)
        stream = _divide(stream, shard)
        self._serve(Pipeline(records, prepares, changes, one_hot, stream, threads))
        self._pipeline.image(0, 0)  # an augmentation that fails on such images fails here
        if model is not None:
            self.check(model)

    def __repr__(self) -> str:
        facts: dict[str, Any] = {"num_images": self.num_images, "num_classes": self.num_classes}
        facts |= {"image_size": self.preprocessor.image_size, "batch_size": self.batch_size}
        return described(self, source=self._pipeline.records.name, **facts)

    @property
    def preprocessor(self) -> Preprocessor:
        """The `Preprocessor` that prepares the images."""
        return self._pipeline.preprocessor

    @property
    def name(self) -> str:
        """The path of the folder, or the name of the data set."""
        return self._pipeline.records.name

    @property
    def augmentation(self) -> Augmentation | Views | None:
        """The augmentation of the images, or their views; None for evaluation data."""
        return self._pipeline.augmentation

    @property
    def batch_size(self) -> int:
        """Images per batch."""
        return self._pipeline.stream.batch_size

    @property
    def shard(self) -> tuple[int, int]:
        """`(index, count)`: the data yield the part `index` of `count` parts of every batch."""
        return self._pipeline.stream.shard

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches per epoch; None if an epoch is one pass."""
        return self._pipeline.stream.steps_per_epoch

    @property
    def one_hot(self) -> bool:
        """Whether labels are float32 `(batch, num_classes)`."""
        return self._pipeline.one_hot

    @property
    def task(self) -> Task:
        """What the labels are, see `keras_vit.config.Prediction`."""
        task: Task = self._pipeline.records.task
        return task

    @property
    def seed(self) -> int:
        """Seed of order, validation split and augmentation."""
        return self._pipeline.stream.seed

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the labels; or of the regression outputs."""
        return self._pipeline.records.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes, or of regression outputs; 1 for depth."""
        return len(self.class_names)

    @property
    def num_images(self) -> int:
        """Number of images in the data set."""
        return len(self._pipeline.records)

    @property
    def labels(self) -> np.ndarray:
        """The labels in the order of the data set.

        Single label: int32 `(num_images,)`. Multi-label: bool `(num_images, num_classes)`.
        Regression: float32 of that shape. Segmentation and depth: paths of the targets,
        `(num_images,)`.
        """
        return self._pipeline.records.labels

    @property
    def paths(self) -> tuple[str, ...] | None:
        """Files of the images, in the order of the data set; None for images in memory."""
        images = self._pipeline.records.images
        return tuple(map(str, images)) if isinstance(images[0], (str, os.PathLike)) else None

    @property
    def _decoded(self) -> Sequence[Any] | None:
        """The decoded images, in the order of the data set; None without a cache."""
        return self._pipeline.records.decoded

    @property
    def unreadable(self) -> dict[str, str]:
        """The images that were skipped, by name, and the reason for each."""
        return dict(self._pipeline.records.unreadable)

    @property
    def class_counts(self) -> dict[str, int]:
        """The number of images of each class, by class name.

        Raises:
            ConfigError: the data are for regression, segmentation or depth; so for `class_weight`
                and `positive_weights`.
        """
        return dict(zip(self.class_names, self._pipeline.records.counts.tolist(), strict=True))

    @property
    def class_weight(self) -> dict[int, float]:
        """Weights for `fit(class_weight=...)` that give every class the same total weight.

        Raises:
            ConfigError: the data are multi-label; see `positive_weights`.
        """
        if self.task == "multi_label":
            raise ConfigError(
                "class_weight is for images of one class each; these are multi-label. Give a "
                "recipe positive_weights=data.positive_weights."
            )
        counts = self._pipeline.records.counts
        present = np.flatnonzero(counts)
        return {int(k): self.num_images / (len(present) * int(counts[k])) for k in present}

    @property
    def positive_weights(self) -> tuple[float, ...]:
        """Loss weights that balance the classes of multi-label data, for a recipe.

        The weight of a class is the number of images without it, divided by the number with it, so
        that both groups have the same total weight. A class of no image or of every image gets 1.
        """
        counts = self._pipeline.records.counts.tolist()
        return tuple((self.num_images - n) / n if 0 < n < self.num_images else 1.0 for n in counts)

    def __len__(self) -> int:
        return self._pipeline.stream.num_batches

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index}, expected 0 to {len(self) - 1}")
        number = self.epoch * len(self) + index
        with self._lock:
            if index in self._read:
                self._read.clear()  # a new pass, or one that begins again
            self._read.add(index)
            follows = number == self._next_number
            self._next_number = number + 1
            if not (index == 0 or follows):
                self._coming = None
                if self._in_epoch:
                    self._warn_of_order()
            elif not follows or self._coming is None:
                self._coming = self._pipeline.read_from(number)
            if self._coming is not None:
                return next(self._coming)
        return self._pipeline.map_dataset(self.epoch + 1)[number]

    def on_epoch_begin(self) -> None:
        """Marks the start of a pass; Keras calls it before each epoch."""
        self._in_epoch = True

    def on_epoch_end(self) -> None:
        """Advances `epoch` if all batches of a pass have been read since `on_epoch_begin`.

        Keras also calls it before its first epoch, of which it may have read one batch to infer
        shapes, and twice after an incomplete execution of several steps.
        """
        if self._in_epoch and len(self._read) == len(self):
            self.epoch += 1
            self._read.clear()
        self._in_epoch = False

    def hold_out(self, validation: float) -> tuple["ImageData", "ImageData"]:
        """Splits the data into training and validation data, with the same fraction of each class.

        For multi-label data the fractions are about the same, and the training data have every
        class. Data for regression, segmentation and depth are split at random.

        The split depends only on the labels, the seed and the fraction. The training data are
        shuffled and augmented as these data are. The validation data are one pass in order,
        prepared for evaluation, with labels of the same form.

        Args:
            validation: fraction of the images for validation, between 0 and 1.

        Returns:
            The training data and the validation data.

        Raises:
            ConfigError: the fraction is not between 0 and 1, or every class has one image.
        """
        HELD_OUT.check("validation", validation)
        records = self._pipeline.records
        has_classes = self.task in CLASSIFICATION and not isinstance(self.augmentation, Views)
        strata = self.labels if has_classes else np.zeros(len(records), int)
        first, second = order.stratify(strata, validation, self.seed)
        if not len(second):
            raise ConfigError(
                f"{records.name}: validation={validation} needs a class of at least two images."
            )
        stream = self._pipeline.stream
        shuffled = dataclasses.replace(stream, shuffle=self._shuffle is not False)
        in_order = dataclasses.replace(stream, shuffle=False, steps_per_epoch=None)
        return (
            self._with(records.select(first), shuffled, self._shard),
            self._with(records.select(second), in_order, None, augmentation=None),
        )

    def with_class_names(self, class_names: Sequence[str]) -> "ImageData":
        """Returns the same data with labels in the order of these names, and with their spelling.

        Args:
            class_names: a name for each class of the data, which may differ in case or Unicode
                form; they may include classes that the data lack.

        Raises:
            ConfigError: a class of the data is not among the names.
        """
        stream = self._pipeline.stream
        return self._with(self._pipeline.records.in_order_of(class_names), stream, stream.shard)

    def with_steps_per_epoch(self, steps_per_epoch: int) -> "ImageData":
        """Returns the same data in epochs of `steps_per_epoch` full batches.

        Args:
            steps_per_epoch: batches per epoch, from an endless stream of shuffled passes.

        Raises:
            ConfigError: the number is below 1.
        """
        COUNT.check("steps_per_epoch", steps_per_epoch)
        stream = dataclasses.replace(
            self._pipeline.stream,
            steps_per_epoch=steps_per_epoch,
            shuffle=self._shuffle is not False,
        )
        return self._with(self._pipeline.records, stream, self._shard)

    def to_grain(self, epochs: int = 1) -> Any:
        """Returns the batches of epochs 0 to `epochs` - 1 as a `grain.MapDataset`.

        Batch `i` of epoch `e` has the index `e * len(data) + i`. It is the batch of `data`, bit by
        bit, with its shuffling, augmentation and shard. Worker processes of Grain may prepare it::

            batches = data.to_grain(epochs=10).to_iter_dataset()
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=4))
            model.fit(batches, epochs=10, steps_per_epoch=len(data))

        Call `absl.flags.FLAGS.mark_as_parsed()` before that, unless absl runs the program.

        Args:
            epochs: number of epochs.

        Raises:
            ConfigError: `epochs` is below 1.
        """
        COUNT.check("epochs", epochs)
        # Worker processes would each get a copy of the decoded images.
        records = dataclasses.replace(self._pipeline.records, decoded=None)
        return dataclasses.replace(self._pipeline, records=records).map_dataset(epochs)

    def check(self, model: Any) -> None:
        """Checks that a `VisionTransformer` can be trained and evaluated on these data.

        A model without class names takes those of the data.

        Raises:
            ConfigError: size, channels, classes or their order differ, or images are smaller than a
                patch; the message names every difference.
        """
        records = self._pipeline.records
        problems = list_differences(records, self.preprocessor, model, self._min_size)
        if self.one_hot and model.prediction.is_binary:
            problems.append(
                "the model has one logit for two classes, whose labels are 0 and 1; load it with "
                "num_classes=2 for one-hot, mixed or multi-label images"
            )
        if problems:
            raise ConfigError(f"{records.name}: " + "; ".join(problems) + ".")
        model._agree_on_names(self)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_coming")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._serve(self._pipeline, self.epoch)

    def _with(
        self, records: Records, stream: order.Stream, shard: tuple[int, int] | None, **fields: Any
    ) -> "ImageData":
        """Returns the data with new records and a new stream; `fields` change the pipeline."""
        data = copy.copy(self)
        stream = _divide(dataclasses.replace(stream, count=len(records)), shard)
        pipeline = dataclasses.replace(self._pipeline, records=records, stream=stream, **fields)
        data._serve(pipeline)
        return data

    def _serve(self, pipeline: Pipeline, epoch: int = 0) -> None:
        """Sets the pipeline and the epoch that the batches come from."""
        self.epoch = epoch
        self._pipeline = pipeline
        self._in_epoch = False
        self._read = set()
        self._lock = threading.Lock()
        self._coming = None
        self._next_number = -1

    def _warn_of_order(self) -> None:
        warn(
            "fit reads the batches in another order; give it shuffle=False. The images are "
            "shuffled already, and only batches read in order are prepared ahead and reproducible.",
        )


def _divide(stream: order.Stream, shard: tuple[int, int] | None) -> order.Stream:
    """Returns the shard of a stream, by default that of this process."""
    if shard is None:
        shard = data_shard() if stream.shuffle else (0, 1)
    index, count = shard
    if not 0 <= index < count:
        raise ConfigError(f"shard={shard}, expected (index, count) with 0 <= index < count.")
    parts = math.lcm(count, batch_parts())
    if stream.shuffle and stream.batch_size % parts:
        raise ConfigError(
            f"batch_size={stream.batch_size}: {parts} devices or processes do not divide a batch. "
            f"Give a multiple of {parts}."
        )
    return dataclasses.replace(stream, divisor=parts, shard=shard)
