"""A folder of image files, with one folder per class or a table of labels."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from keras_vit.data.image_data import ImageData
from keras_vit.data.options import Options, Prepares
from keras_vit.data.records import Records
from keras_vit.data.tables import read_records
from keras_vit.errors import ConfigError, nearest
from keras_vit.images import is_image_file, list_images
from keras_vit.text import warn

_NAMED = 5


def from_folder(
    path: str | os.PathLike[str],
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    class_names: Sequence[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    multi_label: bool = False,
    **options: Unpack[Options],
) -> ImageData:
    """Returns the data set of a folder that holds a folder of images per class, or a table.

    The table names each image of the folder, by its path in the folder, and its labels::

        path,labels             path,cat,dog         {"a.jpg": ["cat", "dog"],
        a.jpg,cat dog           a.jpg,1,1             "b/c.jpg": []}
        b/c.jpg,                b/c.jpg,0,0

    Labels in one column are separated by `|` or `;` if the column has one of them, and by spaces
    otherwise.

    Images may lie in subfolders. `keras_vit.images.list_images` finds the image files: it
    skips hidden files and folders. A warning names files that are not images.

    Args:
        path: the folder.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        class_names: names of the folders, in the order of the labels. None takes the labels of
            the model if they name every folder, and otherwise all folders, sorted. With `labels`
            the names of the table take the place of the folders.
        labels: path of a table, CSV with a first line of names, or JSON; a relative path may begin
            in the folder.
        multi_label: whether an image has many labels, or none, in the table: batches then have
            float32 labels `(batch, num_classes)`. False expects one label per image.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or `path` is not a folder, holds images beside its folders,
            or has a class without images; or the table does not fit the images.
    """
    root, model_labels = Path(path), getattr(preprocessor, "labels", None)
    if labels is None:
        if multi_label:
            raise ConfigError(
                f"{path}: multi_label=True needs a table, labels= (--labels); an image in a folder "
                "of its class has one label."
            )
        records = _records(root, class_names, model_labels)
    else:
        table = root / labels
        table = table if table.is_file() else Path(labels)
        files = list_images(root)
        records = read_records(root, table, files, class_names, model_labels, multi_label)
    return ImageData(records, preprocessor, batch_size, **options)


def _records(
    root: Path, expected: Sequence[str] | None, model_labels: Sequence[str] | None
) -> Records:
    if not root.is_dir():
        actual = "a file" if root.exists() else "nothing"
        raise ConfigError(
            f"{root}: expected a folder with a folder of images per class, found {actual}."
        )
    entries = sorted(e for e in root.iterdir() if not e.name.startswith("."))
    folders = {e.name: e for e in entries if e.is_dir()}
    beside = [e for e in entries if is_image_file(e)]
    if not folders or beside:
        actual = f"{beside[0].name} beside them" if folders and beside else "no folder"
        raise ConfigError(f"{root}: expected a folder of images per class, found {actual}.")
    names = _class_names(root, list(folders), expected, model_labels)
    images: list[str] = []
    labels: list[int] = []
    empty: list[str] = []
    odd: list[str] = []
    for name, folder in folders.items():
        files = list_images(folder)
        images += files.images
        labels += [names.index(name)] * len(files.images)
        odd += files.others
        if not files.images:
            empty.append(name)
    if empty:
        raise ConfigError(
            f"{root}: no image in {', '.join(empty[:_NAMED])}"
            f"{f' and {len(empty) - _NAMED} more' if len(empty) > _NAMED else ''}; remove an empty "
            "class, or fill it."
        )
    if odd:
        warn(
            f"{root}: {len(odd)} files are not images and are left out, such as {odd[0]}.",
        )
    return Records(str(root), images, np.array(labels, np.int32), tuple(names))


def _class_names(
    root: Path, folders: list[str], expected: Sequence[str] | None, labels: Sequence[str] | None
) -> list[str]:
    if expected is None:
        is_named = labels and set(folders) <= set(labels) and len(set(labels)) == len(labels)
        return list(labels) if labels and is_named else folders
    for name in expected:
        if name not in folders:
            raise ConfigError(f"{root}: no folder {name!r}.{nearest(name, folders)}")
    for name in folders:
        if name not in expected:
            raise ConfigError(f"{root}: {name!r} is not in class_names.{nearest(name, expected)}")
    return list(expected)
