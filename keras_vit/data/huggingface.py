"""Data sets of the Hugging Face Hub, by the library `datasets`."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from keras_vit.data.image_data import ImageData
from keras_vit.data.options import Options, Prepares
from keras_vit.data.records import Encoded, Records
from keras_vit.errors import ConfigError, nearest


def from_huggingface(
    name: Any,
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    split: str = "train",
    image: str | None = None,
    label: str | None = None,
    load: dict[str, Any] | None = None,
    **options: Unpack[Options],
) -> ImageData:
    """Returns a data set of the Hub, or a loaded `datasets.Dataset`, as `ImageData`.

    Images stay on disk, encoded, until their batch is prepared.

    Args:
        name: `"owner/name"`, or the name of a loader such as `"imagefolder"` or `"parquet"`;
            or a `datasets.Dataset`.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        split: name of a split of the data set, in the words of the library: `"train"` or
            `"train[:90%]"`.
        image: name of the column of images; None takes the only image column, or `"image"`.
        label: name of the column of labels; None takes the only label column, or `"label"`.
        load: further arguments of `datasets.load_dataset`, such as `revision`.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the library is not installed, finds no data set of
            this name, or the data set lacks the columns.
    """
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            "from_huggingface needs the library datasets: pip install 'keras-vit[huggingface]'."
        ) from error
    table, title = name, "data set"
    if isinstance(name, str):
        title = f"{name}, {split}"
        try:
            table = datasets.load_dataset(name, split=split, **(load or {}))
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigError(f"{title}: {error}") from error
    if not isinstance(table, datasets.Dataset):
        found = type(table).__name__
        hint = (
            " A stream is given to fit as it is, see docs/data.md." if "Iterable" in found else ""
        )
        raise ConfigError(
            f"{title}: expected one split of a datasets.Dataset, found {found}.{hint}"
        )
    image = column_of(table, title, image, "image", datasets.Image)
    label = column_of(table, title, label, "label", datasets.ClassLabel)
    values = np.asarray(table[label])
    class_names = getattr(table.features[label], "names", None)
    if class_names is None:  # plain numbers or words
        class_names, values = np.unique(values, return_inverse=True)
    encoded = table.cast_column(image, datasets.Image(decode=False)).select_columns([image])
    records = Records(title, _Images(encoded, image, title), values, tuple(map(str, class_names)))
    return ImageData(records, preprocessor, batch_size, **options)


class _Images(Sequence[Any]):
    """Encoded images of a table, read one row at a time."""

    def __init__(self, table: Any, column: str, title: str) -> None:
        self._table, self._column, self._title = table, column, title

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: Any) -> Any:
        found = self._table[int(index)][self._column]
        if found["bytes"] is None:
            return found["path"]
        return Encoded(found["bytes"], found["path"] or f"{self._title}, image {index}")


def column_of(table: Any, title: str, asked: str | None, meaning: str, kind: type) -> str:
    """Returns the column `asked`; if that is None, the only column of `kind`, or `meaning`."""
    names = list(table.features)
    found = [name for name in names if isinstance(table.features[name], kind)]
    if asked is None and len(found) != 1:
        found = [name for name in names if name == meaning]
    if asked is not None:
        found = [name for name in names if name == asked]
    if len(found) != 1:
        raise ConfigError(
            f"{title}: {'no' if asked else 'not one'} column {asked or meaning!r}."
            f"{nearest(asked or meaning, names)} It has {', '.join(names)}; name one by "
            f"{meaning}=."
        )
    return found[0]
