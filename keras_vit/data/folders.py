"""A folder of image files, with one folder per class or a table of labels."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from keras_vit.data.image_data import ImageData, Options, Prepares
from keras_vit.data.records import Records, choose_names
from keras_vit.data.tables import read_records, warn_of_others
from keras_vit.errors import ConfigError, listed, nearest
from keras_vit.images import is_image_file, list_images


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
        table = root / labels if (root / labels).is_file() else Path(labels)
        records = read_records(root, table, class_names, model_labels, multi_label)
    return ImageData(records, preprocessor, batch_size, **options)


def _records(
    root: Path, class_names: Sequence[str] | None, model_labels: Sequence[str] | None
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
    for name in class_names or ():
        if name not in folders:
            raise ConfigError(f"{root}: no folder {name!r}.{nearest(name, folders)}")
    names = choose_names(list(folders), class_names, model_labels, f"{root}: ")
    files = {name: list_images(folder) for name, folder in folders.items()}
    if empty := [name for name, own in files.items() if not own.images]:
        raise ConfigError(
            f"{root}: no image in {listed(empty)}; remove an empty class, or fill it."
        )
    warn_of_others(root, [path for own in files.values() for path in own.others])
    images = [path for own in files.values() for path in own.images]
    labels = [names.index(name) for name, own in files.items() for _ in own.images]
    return Records(str(root), images, np.array(labels, np.int32), names)
