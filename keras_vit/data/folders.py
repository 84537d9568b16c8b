"""Reads folders of images, with a folder per class, a table of labels or a folder of targets."""

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from keras_vit.config import Task
from keras_vit.config.dense import IGNORE_LABEL
from keras_vit.config.rules import POSITIVE_NUMBER
from keras_vit.config.views import Views
from keras_vit.data.image_data import ImageData, Options, Prepares
from keras_vit.data.records import Records, choose_task, find_classes
from keras_vit.data.tables import read_table
from keras_vit.data.targets import FORMS, Targets
from keras_vit.errors import ConfigError, listed
from keras_vit.images import list_images
from keras_vit.images.class_names import pair_names
from keras_vit.support.arguments import check_folder, find_table
from keras_vit.support.text import counted, warn

_PARTS = re.compile(
    r"(train(ing)?|val(id(ation)?)?|test(ing)?)([ _-]?(set|data|images|\d+))?", re.IGNORECASE
)


def from_folder(
    path: str | os.PathLike[str],
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    class_names: Sequence[str] | None = None,
    labels_file: str | os.PathLike[str] | None = None,
    path_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    task: Task | None = None,
    targets: str | os.PathLike[str] | None = None,
    target_unit: float = 1.0,
    **options: Unpack[Options],
) -> ImageData:
    """Reads a folder of images as a data set, with a folder per class or a table of labels.

    With `targets`, the images are for semantic segmentation or depth estimation, and have a mask or
    depth map each. With `augmentation=Views(...)` they need no labels, and may be in folders of any
    depth.

    The table has a header and a row per image: CSV with `,`, `;` or tabs, or JSON lines. One column
    of labels holds the name of each image's class. Several columns of 0 and 1 are a class each
    (multi-label): an image may have several, or none. For regression the targets are one or several
    columns of numbers::

        path,label                  path,cat,dog         path,age,height
        a.jpg,golden retriever      a.jpg,1,1            a.jpg,34.5,1.7
        b/c.jpg,cat                 b/c.jpg,0,0          b/c.jpg,8,1.3

    A path is relative to the folder, leads into it, or ends like the path of one of its images; its
    suffix may be missing. Other columns, and images that the table does not name, are skipped.

    The data may have fewer classes than the model, and `class_names` may select some of the
    folders. Images may be in subfolders. `keras_vit.images.list_images` finds the image files: it
    skips hidden files and folders. A warning names files that are not images.

    The target of an image has its path without the suffix: `images/a/b.jpg`, `masks/a/b.png`. It is
    a PNG file of class indices, grey or with a palette, whose colours do not count; a PNG file of
    depths, grey of 8 or 16 bits; or a two-dimensional array in a file `.npy`. It has the height and
    width of the image after its EXIF orientation is applied. It is cropped, flipped and resized
    like the image, by nearest neighbour. Target files are read when their batch is prepared, even
    with a `cache`.

    Args:
        path: the folder.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        class_names: names of the folders, in the order of the labels; a warning names the folders
            that are skipped. None takes all folders, sorted. With a `labels_file` they are the
            names of the classes in the table, and must be complete.
        labels_file: path of a table, which may be relative to the folder.
        path_column: its column of paths; None takes the first of path, file_name, filename, image,
            image_id and id.
        label_column: its column of labels, or several. None takes the first of label, class, breed
            and category; else the only other column, or all columns of 0 and 1. For regression,
            None first looks for `class_names` or the names of the model.
        task: `"single_label"`, `"multi_label"` or `"regression"`. None: regression for a model
            that has this task; otherwise the number of columns of labels decides. With `targets`
            `"segmentation"` or `"depth"`; None for the task of the model.
        targets: folder of the masks or depth maps, one file for each image; the path may be
            relative to the folder of images. Class indices refer to `class_names` or to the classes
            of the model. Pixels with the model's `ignore_label`, or 255, have no class.
        target_unit: factor for the depths in the files, such as 0.001 from millimetres to metres.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or `path` is not a folder, has images outside the folders of
            the classes, or has a class without images; or the table or the targets do not fit the
            images. A batch with an invalid class, or a negative or infinite depth, names the file.
    """
    root, known = Path(path), getattr(preprocessor, "class_names", None)
    if targets is not None:
        if labels_file or path_column or label_column:
            raise ConfigError(
                f"{root}: targets= replaces the labels of images; omit labels_file=, path_column= "
                "and label_column=."
            )
        records = _read_targets(root, targets, target_unit, class_names, preprocessor, task)
        return ImageData(records, preprocessor, batch_size, **options)
    task = choose_task(task, preprocessor)
    makes_views = isinstance(options.get("augmentation"), Views)
    of_table = {"path_column": path_column, "label_column": label_column, "task": task}
    check_folder(root, labels_file, is_labelled=not makes_views, **of_table)
    images, _, others = list_images(root)
    columns: tuple[str, ...] = ("",)
    if labels_file is None and makes_views:
        title, values = str(root), np.full((len(images), 1), root.name)
    elif labels_file is None:
        title = str(root)
        images, values = _read_folders(root, images, class_names)
    else:
        table = find_table(root, labels_file)
        title, own = str(table), table.resolve()
        others = [other for other in others if Path(other).resolve() != own]
        if task == "regression":
            label_column = label_column or class_names or known
        images, columns, values, task = read_table(
            table, root, images, path_column, label_column, task
        )
    if others:
        skipped = counted(len(others), "file")
        warn(f"{root}: skipped {skipped} without an image, such as {others[0]}.")
    if task in ("regression", "multi_label"):
        records = Records(str(root), images, values, columns, task=task)
        records = records.in_order_of(class_names)
    else:
        labels, names, _ = find_classes(values[:, 0], class_names, preprocessor, title, task)
        records = Records(str(root), images, labels, names, task=task)
    return ImageData(records, preprocessor, batch_size, **options)


def _read_targets(
    root: Path, targets: Any, unit: float, class_names: Any, preprocessor: Any, task: Any
) -> Records:
    """Returns the images of a folder with the paths of their targets."""
    POSITIVE_NUMBER.check("target_unit", unit)
    task = task or getattr(preprocessor, "task", None)
    if task not in FORMS:
        raise ConfigError(
            f"{root}: targets= needs task='segmentation' or 'depth', or a model of this task "
            f"(model.with_dense_head), found task={task!r}."
        )
    prediction = getattr(preprocessor, "prediction", None)
    count = 1 if task == "depth" else getattr(prediction, "num_answers", 0)
    names = class_names or getattr(preprocessor, "class_names", None) or map(str, range(count))
    if not (names := tuple(names)):
        raise ConfigError(f"{root}: masks do not state the names of classes; give class_names=.")
    dense = getattr(getattr(preprocessor, "config", None), "dense", None)
    blank = math.nan if task == "depth" else getattr(dense, "ignore_label", IGNORE_LABEL)
    most = getattr(getattr(preprocessor, "preprocessor", preprocessor), "max_pixels", None)
    files = Targets(task, unit, np.arange(len(names)), blank, most)
    folder = root / targets if (root / targets).is_dir() else Path(targets)
    inside = folder.resolve()
    images = [k for k in list_images(root).images if inside not in Path(k).resolve().parents]
    paths = files.find(root, images, folder)
    return Records(str(root), images, paths, names, task=task, targets=files)


def _read_folders(
    root: Path, images: Sequence[str], class_names: Sequence[str] | None
) -> tuple[list[str], np.ndarray]:
    """Returns the images in the folders of the classes, and the folder of each, `(images, 1)`."""
    folders = [e.name for e in root.iterdir() if e.is_dir() and not e.name.startswith(".")]
    used = [Path(image).relative_to(root).parts[0] for image in images]
    outside = [name for name in used if name not in folders]
    if outside:
        raise ConfigError(
            f"{root}: expected a folder of images per class, found {outside[0]} outside of them."
        )
    parts = sorted(name for name in folders if _PARTS.fullmatch(name))
    if not class_names and parts and len(parts) >= min(2, len(folders)):
        part = next((name for name in parts if name.casefold().startswith("train")), parts[0])
        raise ConfigError(
            f"{root}: expected a folder of images per class, found the parts of a data set: "
            f"{listed(parts)}. Give one of them: {root / part}"
        )
    places, problems = pair_names(class_names or folders, folders)
    if problems:
        raise ConfigError(f"{root}: class_names without a folder: {'; '.join(problems)}.")
    names = {folders[k]: name for k, name in zip(places, class_names or folders, strict=True)}
    if skipped := sorted(set(folders) - set(names)):
        warn(f"{root}: skipped {listed(skipped)}, not in class_names.")
    if empty := sorted(set(names) - set(used)):
        raise ConfigError(f"{root}: no images in {listed(empty)}; add some or remove the folder.")
    kept = [(image, names[name]) for image, name in zip(images, used, strict=True) if name in names]
    images, classes = zip(*kept, strict=True)
    return list(images), np.array(classes)[:, None]
