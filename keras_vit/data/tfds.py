"""Reads data sets of TensorFlow Datasets; TensorFlow itself runs only for TFRecord files."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np

from keras_vit.data.image_data import ImageData, Options, Prepares
from keras_vit.data.records import Records, RowImages, multi_hot, read_rows
from keras_vit.errors import ConfigError, nearest
from keras_vit.support.extras import import_extra

MOST_BYTES = 2**32
"""Largest split in TFRecord files: they have no random access, so all records are in memory."""

Label: TypeAlias = str | Callable[[Mapping[str, Any]], int | Sequence[int]]
"""The name of a feature, or a function of a record."""


def from_tfds(
    name: Any,
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    split: str = "train",
    image: str = "image",
    label_column: Label = "label",
    class_names: Sequence[str] | None = None,
    data_dir: Any = None,
    download: bool = True,
    **options: Unpack[Options],
) -> ImageData:
    """Reads a split of a data set of TensorFlow Datasets; it is downloaded if necessary.

    A data set that is not prepared yet is written as array_record, which is read image by image,
    without TensorFlow. A data set that was prepared as TFRecord is read by TensorFlow, and its
    encoded images stay in memory. Every record is read once at the start, for its label.

    Args:
        name: name of the data set, such as `"cifar10"` or `"oxford_iiit_pet:3.2.0"`, or a builder.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        split: a split of the data set in the library's syntax, `"train"` or `"train[:98%]"`.
        image: name of the feature that holds the image.
        label_column: name of the feature that holds its class, or a sequence of classes
            (multi-label); or a function that computes the class, an int, or the classes from a
            record, a mapping of its features.
        class_names: names of the classes; only for a `label_column` that is a function.
        data_dir: folder of the data sets; None for the default of TensorFlow Datasets.
        download: whether an absent data set is downloaded and prepared.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the library is not installed, there is no such data set,
            split or feature, or the split is too large for memory.
    """
    tfds = import_extra("tensorflow_datasets", "tfds", "from_tfds")
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
    if callable(label_column) != bool(class_names):
        raise ConfigError(
            f"{title}: a function as label_column and class_names need each other; give both."
        )
    rows = _open(tfds, builder, title, split, image, label_column)
    class_of = operator.itemgetter(label_column) if isinstance(label_column, str) else label_column
    labels = [class_of(row) for row in read_rows(rows)]
    if class_names is None:
        feature = builder.info.features[label_column]
        class_names = getattr(feature, "feature", feature).names
    names = tuple(class_names)
    is_multi_label = bool(labels) and np.ndim(labels[0]) == 1
    values = multi_hot(labels, names, title)[0] if is_multi_label else np.array(labels, "int64")
    records = Records(title, RowImages(title, rows, image), values, names)
    return ImageData(records, preprocessor, batch_size, **options)


def _open(
    tfds: Any, builder: Any, title: str, split: str, image: str, label: Label
) -> Sequence[Any]:
    """Returns the records, with encoded images."""
    features = builder.info.features
    kinds = {image: tfds.features.Image}
    if isinstance(label, str):
        kinds[label] = tfds.features.ClassLabel
    for key, kind in kinds.items():
        feature = dict(features).get(key)
        if isinstance(feature, tfds.features.Sequence):
            feature = feature.feature
        if not isinstance(feature, kind):
            raise ConfigError(
                f"{title}: no {kind.__name__} {key!r}.{nearest(key, features)} It has "
                f"{', '.join(features)}; choose by image= and label_column=."
            )
    skip = {image: tfds.decode.SkipDecoding()}
    try:
        size = builder.info.splits[split].num_bytes
        try:
            return builder.as_data_source(split, decoders=skip)
        except NotImplementedError as error:  # TFRecord
            if size > MOST_BYTES:
                raise ConfigError(
                    f"{title}: {size} bytes of TFRecord, expected at most {MOST_BYTES}; convert it "
                    "once with `tfds convert_format --out_file_format=array_record`."
                ) from error
            dataset = builder.as_dataset(split=split, decoders=skip, shuffle_files=False)
            return list(tfds.as_numpy(dataset))
    except ValueError as error:  # no such split
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{title}: {error}") from error
