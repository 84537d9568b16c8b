"""Data sets of the Hugging Face Hub, by the library `datasets`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.data.image_data import ImageData
from keras_vit.data.records import Encoded, Records
from keras_vit.errors import ConfigError, nearest


def from_huggingface(
    name: Any,
    preprocessor: Any,
    batch_size: int = 32,
    *,
    split: str = "train",
    image: str | None = None,
    label: str | None = None,
    load: dict[str, Any] | None = None,
    **options: Any,
) -> ImageData:
    """Returns a data set of the Hub, or one that `datasets` has loaded already.

    Images stay encoded, on disk, until their batch is prepared.

    Args:
        name: `"owner/name"`, or a loader's name such as `"imagefolder"` or `"parquet"`;
            or a `datasets.Dataset`.
        preprocessor, batch_size: as of `ImageData`.
        split: of the Hub's data set, such as `"train"` or `"train[:90%]"`; for a share of
            your own, `.split(0.1)` on what is returned.
        image, label: names of the columns; None for the only ones of that kind.
        load: further arguments of `datasets.load_dataset`, such as `revision`.
        **options: of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the library is not installed, finds no such data
            set, or has no such columns.
    """
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            "from_huggingface needs the library datasets: pip install keras-vit[huggingface]."
        ) from error
    table, title = name, "data set"
    if isinstance(name, str):
        title = f"{name}, {split}"
        try:
            table = datasets.load_dataset(name, split=split, **(load or {}))
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigError(f"{title}: {error}") from error
    if not isinstance(table, datasets.Dataset):
        raise ConfigError(
            f"{title}: expected one split of a datasets.Dataset, found {type(table).__name__}."
        )
    image = _column(table, title, image, "image", datasets.Image)
    label = _column(table, title, label, "label", datasets.ClassLabel)
    values = np.asarray(table[label])
    class_names = getattr(table.features[label], "names", None)
    if class_names is None:  # plain numbers or words
        class_names, values = np.unique(values, return_inverse=True)
    encoded = table.cast_column(image, datasets.Image(decode=False)).select_columns([image])
    records = Records(title, _Images(encoded, image, title), values, tuple(map(str, class_names)))
    return ImageData(records, preprocessor, batch_size, **options)


class _Images(Sequence[Any]):
    """Encoded images of a table, one row at a time."""

    def __init__(self, table: Any, column: str, title: str) -> None:
        self._table, self._column, self._title = table, column, title

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: Any) -> Any:
        found = self._table[int(index)][self._column]
        if found["bytes"] is None:
            return found["path"]
        return Encoded(found["bytes"], found["path"] or f"{self._title}, image {index}")


def _column(table: Any, title: str, asked: str | None, meaning: str, kind: type) -> str:
    """The column that was asked for; else the only one of the kind, or the one so called."""
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
