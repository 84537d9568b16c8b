"""Data sets of Grain: as a source of `ImageData`, and its batches as a data set of Grain."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from keras_vit.data.image_data import ImageData
from keras_vit.data.options import Options, Prepares
from keras_vit.data.records import Encoded, Records, classes_of
from keras_vit.errors import ConfigError, listed

_AT_ONCE = 256
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
        raise ConfigError(f"{title}: repeats without end; leave .repeat() out.")
    if labels is None:
        labels = _labels(source, label, title)
    values, names = classes_of(np.asarray(labels), class_names, preprocessor, title)
    records = Records(title, _Images(source, image, title), values, names)
    return ImageData(records, preprocessor, batch_size, **options)


class _Images(Sequence[Any]):
    """The images of the records, read one by one."""

    def __init__(self, source: Any, key: str | int, title: str) -> None:
        self._source, self._key, self._title = source, key, title

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        found = _value(self._source[int(index)], self._key, 0, self._title, int(index))
        if isinstance(found, bytes):
            return Encoded(found, f"{self._title}, image {int(index)}")
        return found


def _labels(source: Any, label: str | int, title: str) -> list[Any]:
    labels = []
    for start in range(0, len(source), _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, len(source)))
        if hasattr(source, "__getitems__"):
            records = source.__getitems__(list(numbers))
        else:
            records = [source[k] for k in numbers]
        labels += [
            _value(record, label, 1, title, k) for k, record in zip(numbers, records, strict=True)
        ]
    return labels


def _value(record: Any, key: str | int, place: int, title: str, number: int) -> Any:
    """Returns a value of a record; `place` is that in a tuple if the key is a name."""
    if isinstance(record, tuple | list):
        key = place if isinstance(key, str) else key
        if key < len(record):
            return record[key]
        found = f"a tuple of {len(record)}"
    elif isinstance(record, Mapping):
        if key in record:
            return record[key]
        found = f"a dict of {listed(map(str, record))}"
    elif record is None:
        raise ConfigError(
            f"{title}: record {number} was filtered out, so that numbers have gaps. Filter before "
            "the records are stored, or give the numbers of the others: source[numbers]."
        )
    else:
        found = f"{type(record).__name__}"
    raise ConfigError(
        f"{title}: record {number} is {found}, expected a dict with {key!r} or a tuple (image, "
        "label). Parse it by grain.MapDataset.source(...).map(...), or name the keys by image= and "
        "label=."
    )
