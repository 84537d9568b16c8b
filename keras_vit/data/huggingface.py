"""Reads data sets of the Hugging Face Hub through the library `datasets`."""

from typing import Any, Unpack

import numpy as np

from keras_vit.data.image_data import ImageData, Options, Prepares
from keras_vit.data.records import Records, RowImages, label_array, multi_hot
from keras_vit.errors import ConfigError, nearest
from keras_vit.support.extras import import_extra


def from_huggingface(
    name: Any,
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    split: str = "train",
    image: str | None = None,
    label_column: str | None = None,
    load: dict[str, Any] | None = None,
    **options: Unpack[Options],
) -> ImageData:
    """Reads a data set of the Hugging Face Hub, or a loaded `datasets.Dataset`.

    Images stay encoded on disk until their batch is prepared.

    Args:
        name: `"owner/name"`, or the name of a loader such as `"imagefolder"` or `"parquet"`;
            or a `datasets.Dataset`.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        split: a split of the data set in the library's syntax, `"train"` or `"train[:90%]"`.
        image: name of the column of images; None takes the only image column, or `"image"`.
        label_column: name of the column of labels; None takes the only label column, or `"label"`.
            A column of lists makes the data multi-label.
        load: further arguments of `datasets.load_dataset`, such as `revision`.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the library is not installed, there is no such data set, or
            it lacks the columns.
    """
    datasets = import_extra("datasets", "huggingface", "from_huggingface")
    table, title = name, "data set"
    if isinstance(name, str):
        title = f"{name}, {split}"
        try:
            table = datasets.load_dataset(name, split=split, **(load or {}))
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigError(f"{title}: {error}") from error
    if not isinstance(table, datasets.Dataset):
        actual = type(table).__name__
        hint = " Pass a stream directly to fit, see docs/data.md." if "Iterable" in actual else ""
        raise ConfigError(
            f"{title}: expected one split of a datasets.Dataset, found {actual}.{hint}"
        )
    image = _find_column(table, title, image, "image", datasets.Image)
    label_column = _find_column(table, title, label_column, "label", datasets.ClassLabel)
    column, feature = table[label_column], table.features[label_column]
    class_names = getattr(getattr(feature, "feature", feature), "names", None)
    if len(column) and isinstance(column[0], list):
        values, class_names = multi_hot(column[:], class_names, title)
    else:
        values = label_array(column[:], title)
    if class_names is None:  # plain numbers or words
        class_names, values = np.unique(values, return_inverse=True)
    encoded = table.cast_column(image, datasets.Image(decode=False)).select_columns([image])
    records = Records(title, RowImages(title, encoded, image), values, tuple(map(str, class_names)))
    return ImageData(records, preprocessor, batch_size, **options)


def _find_column(table: Any, title: str, name: str | None, meaning: str, kind: type) -> str:
    """Returns the column `name`; if that is None, the only column of `kind`, or `meaning`."""
    names = list(table.features)
    columns = [each for each in names if isinstance(table.features[each], kind)]
    if name is not None or len(columns) != 1:
        columns = [each for each in names if each == (name or meaning)]
    if len(columns) != 1:
        raise ConfigError(
            f"{title}: {'no' if name else 'not one'} column {name or meaning!r}."
            f"{nearest(name or meaning, names)} It has {', '.join(names)}; choose by image= and "
            "label_column=."
        )
    return columns[0]
