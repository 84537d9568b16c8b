"""A folder of image files, with one folder per class or a table of labels."""

import contextlib
import csv
import io
import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np

from keras_vit.data.image_data import ImageData, Options, Prepares
from keras_vit.data.records import MOST_NUMBER, Records, choose_names, multi_hot
from keras_vit.errors import ConfigError, listed, nearest, shown
from keras_vit.images import is_image_file, list_images
from keras_vit.images.decoding import find_format
from keras_vit.support.arguments import check_folder, find_table
from keras_vit.support.text import counted, warn

Names: TypeAlias = Sequence[str] | None

Labels: TypeAlias = dict[str, list[str]]
"""Path of an image -> its labels."""

Line: TypeAlias = tuple[int, str, list[str]]
"""Number of a line of CSV, its first cell, and the others."""

_MOST_DECIMALS = 10
"""Most classes whose names are decimals before a warning asks whether they are numbers."""


def from_folder(
    path: str | os.PathLike[str],
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    class_names: Sequence[str] | None = None,
    labels_file: str | os.PathLike[str] | None = None,
    multi_label: bool = False,
    regression: bool = False,
    **options: Unpack[Options],
) -> ImageData:
    """Returns the data set of a folder that holds a folder of images per class, or a table.

    The table names each image of the folder, by its path in the folder, and its labels::

        path,labels             path,cat,dog         {"a.jpg": ["cat", "dog"],
        a.jpg,cat dog           a.jpg,1,1             "b/c.jpg": []}
        b/c.jpg,                b/c.jpg,0,0

    Labels in one column are separated by `|` or `;` if the column has one of them, and by spaces
    otherwise.

    With `regression` the labels are numbers, one or several of each image::

        path,age             path,age,height         {"a.jpg": 34.5,
        a.jpg,34.5           a.jpg,34.5,1.7           "b/c.jpg": 8}
        b/c.jpg,8            b/c.jpg,8,1.3

    In JSON several numbers are an object with their names.

    Images may lie in subfolders. `keras_vit.images.list_images` finds the image files: it
    skips hidden files and folders. A warning names files that are not images.

    Args:
        path: the folder.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        class_names: names of the folders, in the order of the labels. None takes the labels of
            the model if they name every folder, and otherwise all folders, sorted. With a
            `labels_file` the names of the table take the place of the folders; with `regression`
            these are the columns to predict; a number of JSON without a name has the first one.
        labels_file: path of a table, CSV with a first line of names, or JSON; a relative path may
            begin in the folder.
        multi_label: whether an image has many labels, or none, in the table: batches then have
            float32 labels `(batch, num_classes)`. False expects one label per image.
        regression: whether the table has numbers to predict, such as an age: batches then have
            float32 numbers `(batch, outputs)`.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or `path` is not a folder, holds images beside its folders,
            or has a class without images; or the table does not fit the images.
    """
    root, model_labels = Path(path), getattr(preprocessor, "class_names", None)
    check_folder(root, labels_file)
    if multi_label and regression:
        raise ConfigError("multi_label=True and regression=True exclude each other: choose one.")
    if labels_file is None:
        if multi_label or regression:
            word = "regression" if regression else "multi_label"
            raise ConfigError(
                f"{path}: {word}=True needs a table, labels_file=; an image in a folder "
                "of its class has one label."
            )
        records = _read_folders(root, class_names, model_labels)
    elif regression:
        records = _read_number_table(root, find_table(root, labels_file), class_names, model_labels)
    else:
        table = find_table(root, labels_file)
        records = _read_label_table(root, table, class_names, model_labels, multi_label)
    return ImageData(records, preprocessor, batch_size, **options)


def _read_folders(root: Path, class_names: Names, model_labels: Names) -> Records:
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
    _warn_of_others(root, [path for own in files.values() for path in own.others])
    images = [path for own in files.values() for path in own.images]
    labels = [names.index(name) for name, own in files.items() for _ in own.images]
    return Records(str(root), images, np.array(labels, np.int32), names)


def _read_label_table(
    root: Path,
    table: Path,
    class_names: Names,
    model_labels: Names,
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
    labels, classes = _labels(table)
    images, paths = _match_images(root, table, labels)
    if not classes:
        raise ConfigError(f"{table}: no image has a label; expected one class or more.")
    if not class_names:
        used = {name for row in labels.values() for name in row}
        if unused := [name for name in classes if name not in used]:
            raise ConfigError(
                f"{table}: no image has the class {listed(unused)}; remove it, or give class_names "
                "with it."
            )
    names = choose_names(classes, class_names, model_labels, f"{table}: ")
    hot, _ = multi_hot([labels[path] for path in paths], names, str(table))
    several = np.flatnonzero(hot.sum(axis=1) != 1)
    if multi_label and classes == ["0", "1"] and not len(several):
        raise ConfigError(
            f"{table}: every image has either 0 or 1. For a single class write its name in place "
            "of 1, and nothing in place of 0; for one label per image leave multi_label=True "
            "out."
        )
    if multi_label:
        return Records(str(root), images, hot, names)
    _warn_of_decimals(table, classes)
    if len(several):
        path = paths[several[0]]
        raise ConfigError(
            f"{table}: {path} has {len(labels[path])} labels ({listed(labels[path])}), expected "
            "one per image. For many labels per image give multi_label=True, to "
            "evaluate a multi-label model; a name with spaces ends with ; in CSV."
        )
    return Records(str(root), images, hot.argmax(axis=1), names)


def _read_number_table(root: Path, table: Path, class_names: Names, model_labels: Names) -> Records:
    """Returns the images of a folder with the numbers of a table, as `_read_label_table`."""
    numbers: dict[str, list[float]] = {}
    entries = list(_entries(table, class_names))
    if not entries:
        raise ConfigError(f"{table}: expected a row per image, found none.")
    known = set(entries[0][2])
    of_model = model_labels if known.issuperset(model_labels or ()) else None
    columns = tuple(class_names or of_model or entries[0][2])
    for place, path, values in entries:
        if set(values) != known or not known.issuperset(columns):
            raise ConfigError(
                f"{table}{place}: {path} has numbers for {listed(values)}; expected "
                f"{listed(columns)}, and the same names for every image."
            )
        _check_new(path, numbers, table)
        numbers[path] = [_number(values[name], name, path, f"{table}{place}") for name in columns]
    images, paths = _match_images(root, table, numbers)
    labels = np.array([numbers[path] for path in paths])
    return Records(str(root), images, labels, columns, regression=True)


def _match_images(root: Path, table: Path, entries: Collection[str]) -> tuple[list[str], list[str]]:
    """Returns the images of a folder, and their paths in a table, which has the same images."""
    files = list_images(root)
    paths = [_normal(Path(image).relative_to(root)) for image in files.images]
    if absent := sorted(set(entries) - set(paths)):
        raise ConfigError(
            f"{table}: {len(absent)} of {len(entries)} images are not in {root}: {listed(absent)}."
            f"{nearest(absent[0], paths)} Expected paths relative to that folder."
        )
    if bare := sorted(set(paths) - set(entries)):
        raise ConfigError(
            f"{table}: {len(bare)} of the {len(paths)} images in {root} are not in the table: "
            f"{listed(bare)}. Every image needs an entry, with labels or without."
        )
    own = table.resolve()
    _warn_of_others(root, [path for path in files.others if Path(path).resolve() != own])
    return files.images, paths


def _labels(table: Path) -> tuple[Labels, list[str]]:
    """Returns the labels of each image, and the classes: those of the columns, or sorted names."""
    stored = _read(table)
    labels, classes = (_from_csv if isinstance(stored, list) else _from_json)(stored, table)
    if not labels:
        raise ConfigError(f"{table}: expected a row per image, found none.")
    return labels, classes or sorted({name for row in labels.values() for name in row})


def _read(table: Path) -> Any:
    """Returns pairs of a path and a value of JSON, a tuple; or the lines of CSV, a list.

    Of a line it has the number, the first cell and the others; the names of columns come first.
    """
    try:
        text = table.read_text(encoding="utf-8-sig")
        if table.suffix.lower() == ".json":
            # A tuple of pairs for an object: of equal keys, a dict would keep the last alone.
            stored = json.loads(text, object_pairs_hook=tuple)
        else:
            reader = csv.reader(io.StringIO(text))
            rows = ((reader.line_num, row) for row in reader if any(map(str.strip, row)))
            return [(line, row[0], list(map(str.strip, row[1:]))) for line, row in rows]
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        raise ConfigError(
            f"{table}: this table of labels cannot be read ({error}). Expected CSV or JSON "
            "in UTF-8."
        ) from error
    if not isinstance(stored, tuple):
        raise ConfigError(f'{table}: expected {{"path": ["label", ...]}}, found {shown(stored)}.')
    return stored


def _from_json(stored: tuple[tuple[str, Any], ...], table: Path) -> tuple[Labels, None]:
    labels: Labels = {}
    for path, names in stored:
        if not isinstance(names, list) or not all(isinstance(n, str) and n.strip() for n in names):
            raise ConfigError(
                f"{table}: {path} has {shown(names)}, expected a list of labels, each a string. "
                "For numbers to predict give regression=True."
            )
        _add(labels, path, names, table)
    return labels, None


def _columns(lines: list[Line], table: Path) -> list[str]:
    """Returns the names of the columns behind the path, after a look at the length of lines."""
    _, first, names = lines[0] if lines else (0, "", [])
    header = [first, *names]
    if not names or len(set(header)) < len(header) or find_format(first):
        raise ConfigError(
            f"{table}: the first line is {shown(','.join(header))}, expected the names of the "
            "columns: path,labels, or path and a column per class or number."
        )
    for _, path, cells in lines[1:]:
        if len(cells) != len(names):
            raise ConfigError(
                f"{table}: {path} has {len(cells) + 1} columns, expected one row of {len(header)} "
                "columns."
            )
    return names


def _from_csv(lines: list[Line], table: Path) -> tuple[Labels, list[str] | None]:
    names = _columns(lines, table)
    classes = names if len(names) > 1 else None
    by_sign = re.search(r"[|;]", "".join(cells[-1] for _, _, cells in lines[1:]))
    labels: Labels = {}
    for _, path, cells in lines[1:]:
        if classes is None:
            if "," in cells[0] and not by_sign:
                raise ConfigError(
                    f"{table}: {path} has {shown(cells[0])}; expected labels that |, ; or spaces "
                    "separate, no comma."
                )
            _add(labels, path, re.split(r"[|;]" if by_sign else r"\s+", cells[0]), table)
            continue
        for name, value in zip(classes, cells, strict=True):
            if value not in ("0", "1", "0.0", "1.0"):
                raise ConfigError(
                    f"{table}: {path} has {shown(value)} in the column {name}, expected 0 or 1. "
                    "For numbers to predict give regression=True."
                )
        _add(labels, path, [n for n, v in zip(classes, cells, strict=True) if float(v)], table)
    return labels, classes


def _entries(table: Path, class_names: Names) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields place in the file, path and values by name of each image of a table of numbers."""
    stored = _read(table)
    if isinstance(stored, list):
        names = _columns(stored, table)
        for line, path, cells in stored[1:]:
            yield f", line {line}", _normal(path), dict(zip(names, cells, strict=True))
        return
    for path, values in stored:
        own = values if isinstance(values, tuple) else [((class_names or ["0"])[0], values)]
        yield "", _normal(path), dict(own)


def _number(value: Any, name: str, path: str, where: str) -> float:
    """Returns a cell of a table as a finite number."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if abs(float(value)) <= MOST_NUMBER and not isinstance(value, bool):
            return float(value)
    raise ConfigError(f"{where}: {path} has {shown(value)} for {name}, expected a finite number.")


def _warn_of_decimals(table: Path, classes: Sequence[str]) -> None:
    """Warns of classes that look like numbers to predict: many decimals."""
    with contextlib.suppress(ValueError):
        if len(classes) > _MOST_DECIMALS and max(float(name) % 1 for name in classes) > 0:
            warn(
                f"{table}: the {len(classes)} classes are decimals, such as {classes[0]}. For "
                "numbers to predict give regression=True."
            )


def _add(labels: Labels, path: str, names: Iterable[str], table: Path) -> None:
    """Adds the labels of an image, each once."""
    path = _normal(path)
    _check_new(path, labels, table)
    labels[path] = list(dict.fromkeys(name.strip() for name in names if name.strip()))


def _check_new(path: str, entries: Collection[str], table: Path) -> None:
    if path in entries:
        raise ConfigError(f"{table}: {path} has a second row, expected one row per image.")


def _normal(path: str | Path) -> str:
    """Returns the form of a path that is compared: some systems write an umlaut as two letters."""
    return unicodedata.normalize("NFC", Path(path).as_posix())


def _warn_of_others(root: Path, paths: list[str]) -> None:
    """Warns of the files in a folder that are not images."""
    if paths:
        left_out = counted(len(paths), "file")
        warn(f"{root}: left out {left_out} without an image, such as {paths[0]}.")
