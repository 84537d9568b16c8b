"""A folder of images with a table of their labels, CSV or JSON: many labels per image, or one."""

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_vit.data.records import Records, choose_names, multi_hot
from keras_vit.errors import ConfigError, listed, nearest, shown
from keras_vit.images.decoding import format_of_name
from keras_vit.images.image_files import list_images
from keras_vit.text import warn


def read_records(
    root: Path,
    table: Path,
    class_names: Sequence[str] | None,
    model_labels: Sequence[str] | None,
    multi_label: bool,
) -> Records:
    """Returns the images of a folder with the labels of a table; `from_folder` describes it.

    Args:
        root: the folder; the table names images relative to it.
        table: path of the CSV or JSON file.
        class_names: names of the classes; None for the model's labels or those of the table.
        model_labels: labels of the model, which are taken if they name every class.
        multi_label: whether an image may have several labels or none.

    Raises:
        ConfigError: the table cannot be read, its images are not those of the folder, a class is
            unknown or has no image, or an image has not one label and `multi_label` is False.
    """
    files = list_images(root)
    labels, classes = _read(table)
    paths = {Path(image).relative_to(root).as_posix(): image for image in files.images}
    if absent := sorted(set(labels) - set(paths)):
        raise ConfigError(
            f"{table}: {len(absent)} of {len(labels)} images are not in {root}: {listed(absent)}."
            f"{nearest(absent[0], paths)} Expected paths relative to that folder."
        )
    if bare := sorted(set(paths) - set(labels)):
        raise ConfigError(
            f"{table}: {len(bare)} of the {len(paths)} images in {root} are not in the table: "
            f"{listed(bare)}. An image without any of the labels needs an entry without labels."
        )
    warn_of_others(root, [path for path in files.others if not Path(path).samefile(table)])
    if not class_names:
        used = {name for row in labels.values() for name in row}
        if unused := [name for name in classes if name not in used]:
            raise ConfigError(
                f"{table}: no image has the class {listed(unused)}; remove it, or give class_names "
                "with it."
            )
    names = choose_names(classes, class_names, model_labels, f"{table}: ")
    hot, _ = multi_hot([labels[path] for path in paths], names, str(table))
    if multi_label:
        return Records(str(root), files.images, hot, names)
    if len(several := np.flatnonzero(hot.sum(axis=1) != 1)):
        path = list(paths)[several[0]]
        raise ConfigError(
            f"{table}: {path} has {len(labels[path])} labels ({listed(labels[path])}), expected "
            "one per image. For many labels per image give multi_label=True (--multi-label)."
        )
    return Records(str(root), files.images, hot.argmax(axis=1), names)


def _read(table: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the labels of each image, and the classes: those of the columns, or sorted names."""
    try:
        text = table.read_text(encoding="utf-8-sig")
        if table.suffix == ".json":
            labels, classes = _from_json(json.loads(text), table), None
        else:
            labels, classes = _from_csv(text, table)
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{table}: this table of labels cannot be read ({error}).") from error
    if not labels:
        raise ConfigError(f"{table}: expected a row per image, found none.")
    return labels, classes or sorted({name for row in labels.values() for name in row})


def _from_json(stored: object, table: Path) -> dict[str, list[str]]:
    if not isinstance(stored, dict):
        raise ConfigError(f'{table}: expected {{"path": ["label", ...]}}, found {shown(stored)}.')
    for path, names in stored.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{table}: {path} has {shown(names)}, expected a list of labels.")
    return {Path(path).as_posix(): list(dict.fromkeys(row)) for path, row in stored.items()}


def _from_csv(text: str, table: Path) -> tuple[dict[str, list[str]], list[str] | None]:
    header, *lines = [row for row in csv.reader(io.StringIO(text)) if row] or [[]]
    classes = header[1:] if len(header) > 2 else None
    if len(header) < 2 or len(set(header)) < len(header) or format_of_name(header[0]):
        raise ConfigError(
            f"{table}: the first line is {shown(','.join(header))}, expected the names of the "
            "columns: path,labels, or path and a column per class."
        )
    split = re.compile(r"[|;]" if re.search(r"[|;]", "".join(r[-1] for r in lines)) else r"\s+")
    labels: dict[str, list[str]] = {}
    for row in lines:
        path = Path(row[0]).as_posix()
        if len(row) != len(header) or path in labels:
            actual = "a second row" if path in labels else f"{len(row)} columns"
            raise ConfigError(
                f"{table}: {path} has {actual}, expected one row of {len(header)} columns."
            )
        if classes is None:
            names = (name.strip() for name in split.split(row[1]))
            labels[path] = list(dict.fromkeys(name for name in names if name))
            continue
        for name, value in zip(classes, row[1:], strict=True):
            if value.strip() not in ("0", "1", "0.0", "1.0"):
                raise ConfigError(
                    f"{table}: {path} has {shown(value)} in the column {name}, expected 0 or 1."
                )
        labels[path] = [n for n, v in zip(classes, row[1:], strict=True) if float(v)]
    return labels, classes


def warn_of_others(root: Path, paths: list[str]) -> None:
    """Warns of the files in a folder that are not images."""
    if paths:
        warn(f"{root}: {len(paths)} files are not images and are left out, such as {paths[0]}.")
