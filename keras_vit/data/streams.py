"""Images that can only be read in order, such as streams of the Hub, as batches that repeat."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import keras
import numpy as np

from keras_vit.data import augmentation as augmentations
from keras_vit.data import order
from keras_vit.data.arguments import checked_preprocessor
from keras_vit.data.augmentation import Augmentation
from keras_vit.data.huggingface import column_of
from keras_vit.data.image_data import ImageData
from keras_vit.data.inspection import Inspected
from keras_vit.data.options import Prepares
from keras_vit.data.pipeline import Batch, Pipeline
from keras_vit.data.records import Encoded, Records, names_for
from keras_vit.data.threads import Threads
from keras_vit.errors import ConfigError, nearest

Passes = Callable[[int], Iterable[Any]]
"""The number of a pass over the data -> its samples, in the order of that pass."""


class ImageStream(ImageData):
    """Batches of a data set that is read from its start, such as a stream of the Hub.

    `data[i]` is the same function of seed, epoch, number and shard as in `ImageData`, and `fit`,
    shards and resuming work alike. But a batch out of order costs the reading of all samples before
    it in its pass, without their decoding. `from_stream` makes such data.

    What needs every image at hand is refused: `labels`, `class_counts`, `class_weight`, `hold_out`
    and `to_grain`.
    """

    _has_numbers = False

    def __init__(
        self,
        title: str,
        passes: Passes,
        read: Callable[[Any, str], tuple[Any, int]],
        num_images: int,
        class_names: tuple[str, ...],
        preprocessor: Prepares,
        batch_size: int,
        *,
        augmentation: Augmentation | str | None,
        shuffle: bool,
        steps_per_epoch: int | None,
        one_hot: bool,
        seed: int,
        min_size: int | None,
        threads: int | None,
        shard: tuple[int, int] | None,
    ) -> None:
        keras.utils.PyDataset.__init__(self)
        prepares, model = checked_preprocessor(preprocessor, batch_size, steps_per_epoch, seed)
        self._title, self._read, self._num_images = title, read, num_images
        self._classes = class_names
        self._samples = _Samples(passes, num_images, title)
        self._kept: tuple[tuple[int, int], Batch] | None = None
        asked = augmentations.named(augmentation)
        one_hot = one_hot or (asked is not None and asked.mixes)
        self._min_size, self._shuffle, self._asked_shard = min_size, shuffle, shard
        pool = Threads(threads or os.cpu_count() or 1)
        first = self._inspected(0, self._samples.take(0, 1)[0])
        self._serve(
            Pipeline(first, prepares, asked, one_hot, seed, pool), batch_size, steps_per_epoch
        )
        self._pipeline.image(0, 0)  # an augmentation that fails on such images fails here
        if model is not None:
            self.check(model)

    @property
    def num_images(self) -> int:
        """Number of images of a pass."""
        return self._num_images

    @property
    def paths(self) -> None:
        """None: the samples of a stream have no files of their own."""
        return None

    @property
    def labels(self) -> NoReturn:
        """Refused: the labels are known when they are read."""
        self._refuse("labels")

    @property
    def class_counts(self) -> NoReturn:
        """Refused: the labels are known when they are read."""
        self._refuse("class_counts")

    @property
    def class_weight(self) -> NoReturn:
        """Refused: the labels are known when they are read."""
        self._refuse("class_weight")

    def hold_out(self, validation_split: float) -> NoReturn:
        """Refused: it needs all labels."""
        self._refuse("hold_out")

    def to_grain(self, epochs: int = 1) -> NoReturn:
        """Refused: Grain's workers would each read the whole stream."""
        self._refuse("to_grain")

    def _refuse(self, name: str) -> NoReturn:
        raise ConfigError(
            f"{self._title}: a stream has no {name}, which needs all images at hand. Store the "
            "data and use from_huggingface, from_webdataset or from_grain; a part for validation "
            "may be a stream of its own."
        )

    def _warn_of_order(self) -> NoReturn:
        raise ConfigError(
            f"{self._title}: fit takes the batches in another order, for which the stream would be "
            "read again and again; give it shuffle=False. The images are shuffled already."
        )

    def _batch(self, key: tuple[int, int]) -> Batch:
        if self._kept is not None and self._kept[0] == key:  # Keras reads the first batch twice
            return self._kept[1]
        draws = [draw for draw, _ in self._stream.draws(*key)]
        starts = draws[0] != self._samples.position
        samples = self._samples.take(draws[0], len(draws))
        images = self._inspected(draws[0], *samples)
        numbered = [(draw, k) for k, draw in enumerate(draws)]
        batch = self._pipeline.of(images).batch(numbered, *key, self._shard)
        if starts:
            self._kept = key, batch
        return batch

    def _inspected(self, start: int, *samples: Any) -> Inspected:
        """Returns the samples of one batch as a data set, whose images are still encoded."""
        names = [
            f"{self._title}, sample {(start + k) % self._num_images}" for k in range(len(samples))
        ]
        images, labels = zip(*map(self._read, samples, names), strict=True)
        records = Records(self._title, images, np.array(labels), self._classes)
        return Inspected(records, None, {}, {})


class _Samples:
    """The samples of an endless row of passes, by their number in it; best read in order."""

    def __init__(self, passes: Passes, count: int, title: str) -> None:
        self._passes, self._count, self._title = passes, count, title
        self._iterator: Iterator[Any] = iter(())
        self._lock = threading.Lock()
        self.position = -1

    def take(self, start: int, count: int) -> list[Any]:
        """Returns the samples from number `start` on.

        Raises:
            ConfigError: a pass has another number of samples than was stated.
        """
        with self._lock:
            if start != self.position:
                self._begin(start)
            found = []
            self.position = -1  # unless all goes well
            for number in range(start, start + count):
                if number % self._count == 0 and number != start:
                    self._begin(number)
                found.append(self._next(number))
            self.position = start + count
            if self.position % self._count == 0:
                if next(self._iterator, _END) is not _END:
                    raise ConfigError(
                        f"{self._title}: has more than num_images={self._count} images."
                    )
                self.position = -1
            return found

    def _begin(self, number: int) -> None:
        which, place = divmod(number, self._count)
        self._iterator = iter(self._passes(which))
        for k in range(place):
            self._next(number - place + k)

    def _next(self, number: int) -> Any:
        sample = next(self._iterator, _END)
        if sample is _END:
            raise ConfigError(
                f"{self._title}: ended after {number % self._count} images, expected "
                f"num_images={self._count}."
            )
        return sample


_END = object()


def from_stream(
    dataset: Any,
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    num_images: int | None = None,
    image: str | None = None,
    label: str | None = None,
    class_names: Sequence[str] | None = None,
    shuffle: bool | None = None,
    buffer_size: int = 1000,
    augmentation: Augmentation | str | None = None,
    steps_per_epoch: int | None = None,
    one_hot: bool = False,
    seed: int = 0,
    min_size: int | None = None,
    threads: int | None = None,
    shard: tuple[int, int] | None = None,
) -> ImageStream:
    """Returns a stream of the library `datasets`, or any samples that are read in order.

    Every process of a training reads the whole stream and decodes its rows of each batch, so that
    the processes together see the batches of one process. Where the network is the limit, give
    every process a stream of its own, by `datasets.distributed.split_dataset_by_node`, its share of
    the batch size, and `shard=(0, 1)`.

    Args:
        dataset: a `datasets.IterableDataset`, such as that of `load_dataset(..., streaming=True)`;
            or a function of the number of a pass that returns its samples, dicts or tuples
            (image, label), in the order of that pass.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        num_images: number of samples of a pass; None for the number that the data set states.
        image, label: keys of a sample; None for the only image and label column, or `"image"` and
            `"label"`.
        class_names: one name per class; None takes those of the data set or of the model.
        shuffle: whether a data set of `datasets` is shuffled, its files and then its samples in a
            buffer; None shuffles if `augmentation` or `steps_per_epoch` is given.
        buffer_size: samples in that buffer.
        augmentation, steps_per_epoch, one_hot, seed, min_size, threads, shard: as in `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the number of images or the classes are not known, the
            stream has no such columns, or another number of samples.
    """
    if shuffle is None:
        shuffle = augmentation is not None or steps_per_epoch is not None
    passes, title, names = dataset, "stream", class_names
    image_key, label_key = image or "image", label or "label"
    if not callable(dataset):
        title, columns, stated = _described(dataset, image, label)
        image_key, label_key, names = columns[0], columns[1], class_names or columns[2]
        num_images = num_images or stated
        passes = _passes_of(dataset, image_key, shuffle, seed, buffer_size)
    if num_images is None or num_images < 1:
        raise ConfigError(
            f"{title}: does not state its number of images; give num_images=, found {num_images}."
        )
    names = tuple(names or names_for(np.zeros(0), preprocessor))
    if not names:
        raise ConfigError(
            f"{title}: does not state its classes, and is not read to find them; give class_names=."
        )

    def read(sample: Any, name: str) -> tuple[Any, int]:
        return _image(_of(sample, image_key, 0, name), name), _class(
            _of(sample, label_key, 1, name), names, name
        )

    return ImageStream(
        title,
        passes,
        read,
        num_images,
        names,
        preprocessor,
        batch_size,
        augmentation=augmentation,
        shuffle=shuffle,
        steps_per_epoch=steps_per_epoch,
        one_hot=one_hot,
        seed=seed,
        min_size=min_size,
        threads=threads,
        shard=shard,
    )


def _described(
    dataset: Any, image: str | None, label: str | None
) -> tuple[str, tuple[str, str, Sequence[str] | None], int | None]:
    """Returns the title of a data set of `datasets`, its columns and classes, and its length."""
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            "from_stream needs the library datasets: pip install 'keras-vit[huggingface]'."
        ) from error
    if not isinstance(dataset, datasets.IterableDataset):
        raise ConfigError(
            f"from_stream takes a datasets.IterableDataset or a function of the number of a pass, "
            f"found {type(dataset).__name__}."
        )
    title = dataset.info.dataset_name or "stream"
    split = (dataset.info.splits or {}).get(str(dataset.split))
    stated = getattr(split, "num_examples", None) or None
    if dataset.features is None:
        return title, (image or "image", label or "label", None), stated
    image = column_of(dataset, title, image, "image", datasets.Image)
    label = column_of(dataset, title, label, "label", datasets.ClassLabel)
    return title, (image, label, getattr(dataset.features[label], "names", None)), stated


def _passes_of(dataset: Any, image: str, shuffle: bool, seed: int, buffer_size: int) -> Passes:
    import datasets

    if dataset.features is not None and isinstance(dataset.features[image], datasets.Image):
        dataset = dataset.cast_column(image, datasets.Image(decode=False))
    if not shuffle:
        return lambda number: dataset

    def shuffled(number: int) -> Iterable[Any]:
        generator = np.random.default_rng((seed, order.STREAM, number))
        return dataset.shuffle(generator=generator, buffer_size=buffer_size)

    return shuffled


def _of(sample: Any, key: str, place: int, name: str) -> Any:
    if isinstance(sample, tuple | list) and len(sample) > place:
        return sample[place]
    if isinstance(sample, Mapping) and key in sample:
        return sample[key]
    found = ", ".join(map(str, sample)) if isinstance(sample, Mapping) else type(sample).__name__
    raise ConfigError(f"{name}: no {key!r}; found {found}. Name the keys by image= and label=.")


def _image(value: Any, name: str) -> Any:
    """Returns an image for `Preprocessor.decode`; `datasets` gives a dict of bytes and path."""
    if isinstance(value, Mapping) and "bytes" in value:
        name, value = value.get("path") or name, value["bytes"] or value.get("path")
    return Encoded(value, name) if isinstance(value, bytes) else value


def _class(value: Any, names: tuple[str, ...], name: str) -> int:
    value = value.decode() if isinstance(value, bytes) else value
    if isinstance(value, str) and not value.strip().isdecimal():
        if value not in names:
            raise ConfigError(f"{name}: label {value!r} is no class.{nearest(value, names)}")
        return names.index(value)
    return int(value)
