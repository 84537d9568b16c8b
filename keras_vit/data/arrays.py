"""Data sets from arrays of images, and from records with random access, such as Grain's."""

from collections.abc import Sequence
from typing import Any, Unpack

from keras_vit.config import Task
from keras_vit.data.image_data import ImageData, Options, Prepares
from keras_vit.data.records import Records, RowImages, find_classes, read_rows, read_value
from keras_vit.errors import ConfigError
from keras_vit.images.class_names import find_names
from keras_vit.images.inputs import PixelImages, as_array, refuse_torch_dataset

_ENDLESS = 2**40


def from_arrays(
    images: Any,
    labels: Any,
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    class_names: Sequence[str] | None = None,
    task: Task | None = None,
    **options: Unpack[Options],
) -> ImageData:
    """Makes a data set of images in memory, for `fit` and `evaluate`.

    Args:
        images: pixels in [0, 255] or [0, 1], `(images, height, width, channels)`,
            `(images, channels, height, width)` or `(images, height, width)`; or a sequence of
            arrays, PIL images or paths. `docs/preprocessing.md` states how a shape is understood.
        labels: integers or words `(images,)`; for a model with one logit also zeros and ones
            `(images, 1)`. Multi-label: zeros and ones `(images, classes)`. Regression: targets
            `(images,)` or `(images, outputs)`.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        class_names: one name per class, or per output. None takes the labels of the model; without
            them, the class indices or the sorted words. Outputs are then numbered.
        task: `"single_label"`, `"multi_label"` or `"regression"`. None: regression for a model
            that has this task; otherwise the shape of the labels decides.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the array does not have the axes of images; or `images` is
            a torch Dataset, which `from_grain` reads.

    >>> import numpy as np
    >>> from keras_vit import Preprocessor
    >>> from keras_vit.data import from_arrays
    >>> images, labels = np.zeros((10, 8, 8), "uint8"), np.arange(10) % 2
    >>> data = from_arrays(images, labels, Preprocessor(8, channels=1))
    >>> train, validation = data.hold_out(0.2)
    >>> validation.class_counts
    {'0': 1, '1': 1}
    """
    refuse_torch_dataset(images)
    if hasattr(images, "__array__"):
        images = as_array(images)
        if images.ndim not in (3, 4):
            raise ConfigError(
                f"images has shape {images.shape}, expected (images, height, width, channels)."
            )
        images = images[..., None] if images.ndim == 3 else images
        prepared = getattr(preprocessor, "preprocessor", preprocessor)
        images = PixelImages(images, getattr(prepared, "channels", 3))
    values, names, task = find_classes(labels, class_names, preprocessor, "arrays", task)
    records = Records("arrays", images, values, names, task=task)
    return ImageData(records, preprocessor, batch_size, **options)


def from_grain(
    source: Any,
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    image: str | int = "image",
    label_column: str | int = "label",
    labels: Any = None,
    class_names: Sequence[str] | None = None,
    task: Task | None = None,
    **options: Unpack[Options],
) -> ImageData:
    """Makes a data set of records with random access: Grain, ArrayRecord files, torch Datasets.

    An image is read when its batch is prepared. Records in a custom format are parsed by a map::

        source = grain.sources.ArrayRecordDataSource(paths)
        data = from_grain(grain.MapDataset.source(source).map(parse), model)

    Args:
        source: a data source of Grain, or a `grain.MapDataset` without shuffle, batch or repeat.
            Any object with `len` and indexing will do, such as a torch Dataset. A record is a dict
            or a tuple.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        image, label_column: keys of the image, in any form that `Preprocessor.decode` takes, and
            of the label; for tuples their positions, 0 and 1.
        labels: the labels of all records, `(records,)`; without them every record is read once at
            the start.
        class_names: one name per class; None takes `source.classes` of torchvision, the names of
            the model, the labels themselves if they are words, or the class indices.
        task: as for `from_arrays`.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the source cannot be indexed, is endless, or has records
            without the keys.
    """
    title = type(source).__name__
    if not hasattr(source, "__getitem__") or not hasattr(source, "__len__"):
        raise ConfigError(
            f"{title}: cannot be indexed, which shuffling, shards and resuming need. Give the "
            "grain.MapDataset or data source that it reads; or pass a data set of batches directly "
            "to fit."
        )
    if len(source) > _ENDLESS:
        raise ConfigError(f"{title}: the data repeat without end; remove .repeat().")
    if labels is None:
        rows = enumerate(read_rows(source))
        labels = [read_value(row, label_column, 1, title, k) for k, row in rows]
    class_names = class_names or find_names(source)
    values, names, task = find_classes(labels, class_names, preprocessor, title, task)
    records = Records(title, RowImages(title, source, image), values, names, task=task)
    return ImageData(records, preprocessor, batch_size, **options)
