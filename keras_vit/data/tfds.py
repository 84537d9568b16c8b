"""Data sets of TensorFlow Datasets; TensorFlow itself runs only for files of its own format."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.data.image_data import ImageData
from keras_vit.data.records import Encoded, Records
from keras_vit.errors import ConfigError, nearest

MOST_BYTES = 2**32
"""Of a split in TFRecord files, which give no image by its number and are read as a whole."""

_AT_ONCE = 256


def from_tfds(
    name: Any,
    split: str,
    preprocessor: Any,
    batch_size: int = 32,
    *,
    image: str = "image",
    label: str = "label",
    data_dir: Any = None,
    download: bool = True,
    **options: Any,
) -> ImageData:
    """Returns a split of a data set of TensorFlow Datasets.

    What is prepared anew is written as array_record, which is read without TensorFlow, image
    by image. Of a data set that is there as TFRecord, TensorFlow reads the encoded images
    into memory. Every record is read once at the start, for its label.

    Args:
        name: such as `"cifar10"` or `"oxford_iiit_pet:3.2.0"`, or a builder.
        split: such as `"train"` or `"train[:98%]"`; for a share of your own,
            `.split(0.1)` on what is returned.
        preprocessor, batch_size: as of `ImageData`.
        image, label: features with the image and with its class.
        data_dir: where the data sets are; None for TFDS's own place.
        download: fetch and prepare a data set that is not there.
        **options: of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the library is not installed, knows no such data
            set, split or feature, or the split is too large for memory.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ConfigError(
            "from_tfds needs the library tensorflow-datasets: pip install keras-vit[tfds]."
        ) from error
    builder = name
    if isinstance(name, str):
        try:
            builder = tfds.builder(name, data_dir=data_dir)
        except (tfds.core.DatasetNotFoundError, AttributeError, AssertionError) as error:
            hint = nearest(name, tfds.list_builders())
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"{name}: {reason}{hint}") from error
    title = f"{builder.info.full_name}, {split}"
    if not builder.is_prepared():
        if not download:
            raise ConfigError(f"{title}: not prepared in {builder.data_dir}; allow the download.")
        builder.download_and_prepare(file_format="array_record")
    images, labels = _read(tfds, builder, title, split, image, label)
    names = tuple(builder.info.features[label].names)
    records = Records(title, _Images(images, image, title), np.array(labels), names)
    return ImageData(records, preprocessor, batch_size, **options)


def _read(
    tfds: Any, builder: Any, title: str, split: str, image: str, label: str
) -> tuple[Sequence[Any], list[int]]:
    """Records with their images still encoded, by number, and all labels."""
    features = builder.info.features
    kinds = {image: tfds.features.Image, label: tfds.features.ClassLabel}
    for key, kind in kinds.items():
        if not isinstance(dict(features).get(key), kind):
            raise ConfigError(
                f"{title}: no {kind.__name__} {key!r}.{nearest(key, features)} It has "
                f"{', '.join(features)}; name them by image= and label=."
            )
    skip = {image: tfds.decode.SkipDecoding()}
    try:
        size = builder.info.splits[split].num_bytes
        try:
            source = builder.as_data_source(split, decoders=skip)
        except NotImplementedError as error:  # TFRecord
            if size > MOST_BYTES:
                raise ConfigError(
                    f"{title}: {size} bytes of TFRecord, expected at most {MOST_BYTES}; convert it "
                    "once with `tfds convert_format --out_file_format=array_record`."
                ) from error
            dataset = builder.as_dataset(split=split, decoders=skip, shuffle_files=False)
            records = list(tfds.as_numpy(dataset))
            return records, [int(record[label]) for record in records]
    except ValueError as error:  # no such split
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{title}: {error}") from error
    labels: list[int] = []
    for start in range(0, len(source), _AT_ONCE):
        numbers = list(range(start, min(start + _AT_ONCE, len(source))))
        labels += [int(record[label]) for record in source.__getitems__(numbers)]
    return source, labels


class _Images(Sequence[Any]):
    """Encoded images of records."""

    def __init__(self, records: Sequence[Any], key: str, title: str) -> None:
        self._records, self._key, self._title = records, key, title

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return Encoded(self._records[int(index)][self._key], f"{self._title}, image {index}")
