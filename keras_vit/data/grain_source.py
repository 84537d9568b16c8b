"""Data sets of Grain: as a source of `ImageData`, and its batches as a data set of Grain."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from keras_vit.data.image_data import ImageData, Options, Prepares
from keras_vit.data.records import Records, RowImages, classes_of, read_rows, value_of
from keras_vit.errors import ConfigError

_ENDLESS = 2**40


def from_grain(
    source: Any,
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    image: str | int = "image",
    label: str | int = "label",
    labels: Any = None,
    class_names: Sequence[str] | None = None,
    **options: Unpack[Options],
) -> ImageData:
    """Returns the data set of records that Grain reads by number, such as ArrayRecord files.

    Images stay where they are until their batch is prepared. Records that are bytes of a format of
    yours are parsed by a map::

        source = grain.sources.ArrayRecordDataSource(paths)
        data = from_grain(grain.MapDataset.source(source).map(parse), model)

    Args:
        source: a data source of Grain, or a `grain.MapDataset` without a shuffle, a batch or a
            repetition of its own; anything with `len` and access by number will do. A record is
            a dict or a tuple.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        image, label: keys of the image, in any form that `Preprocessor.decode` takes, and of the
            label; for tuples their places, 0 and 1.
        labels: the labels of all records, `(records,)`, which spares reading every record once at
            the start.
        class_names: one name per class; None takes the labels of the model, the words that the
            labels are, or the numbers up to the largest.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the source has no access by number, is endless, or has
            records without the keys.
    """
    title = type(source).__name__
    if not hasattr(source, "__getitem__") or not hasattr(source, "__len__"):
        raise ConfigError(
            f"{title}: has no access by number, which shuffling, shards and resuming need. Give "
            "the grain.MapDataset or data source behind it; or give a data set of batches to fit "
            "itself."
        )
    if len(source) > _ENDLESS:
        raise ConfigError(f"{title}: the data repeat without end; remove .repeat().")
    if labels is None:
        rows = enumerate(read_rows(source))
        labels = [value_of(row, label, 1, title, k) for k, row in rows]
    values, names = classes_of(np.asarray(labels), class_names, preprocessor, title)
    records = Records(title, RowImages(title, source, image), values, names)
    return ImageData(records, preprocessor, batch_size, **options)
