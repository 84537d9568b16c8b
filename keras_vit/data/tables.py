"""Reads the table of labels of a folder of images: a row per image, CSV or JSON lines."""

import collections
import contextlib
import csv
import io
import json
import os
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, TypeAlias

import numpy as np

from keras_vit.config import Task
from keras_vit.data.records import MOST_NUMBER
from keras_vit.errors import ConfigError, listed, nearest, shown
from keras_vit.support.text import counted, log

Columns: TypeAlias = str | Sequence[str] | None
"""One name of a column, or several."""

_PATHS = ("path", "file_name", "filename", "image", "image_id", "id")
_EXPECTED = {"single_label": "a label", "multi_label": "0 or 1", "regression": "a number"}
_LABELS = ("label", "class", "breed", "category")


def read_table(
    table: Path,
    root: Path,
    files: Sequence[str],
    path_column: str | None,
    label_column: Columns,
    task: Task | None,
) -> tuple[list[str], tuple[str, ...], np.ndarray, Task]:
    """Returns the images that a table names, its columns of labels, their values, and the task.

    The images are in the order of `files`, which are those of the folder `root`. The values
    `(images, columns)` are names of classes in one column, zeros and ones, or regression targets. A
    log line counts the columns and images that are skipped. `from_folder` describes the table.

    Raises:
        ConfigError: the table cannot be read or lacks a column, names an image that the folder
            does not have, or has two labels for an image; or a cell is not a label.
    """
    header, rows = _read_rows(table)
    path_name, columns = _choose_columns(table, header, rows, path_column, label_column, task)
    task = task or ("multi_label" if len(columns) > 1 else "single_label")
    named = _name_images(root, files)
    found: dict[str, list[Any]] = {}
    for line, row in rows:
        path, place = str(row[path_name]).strip(), f"{table}, line {line}"
        image = next((named[way] for way in _spellings(path, root) if way in named), None)
        if image is None:
            raise ConfigError(
                f"{place}: no image {path!r} in {root}.{nearest(path, named)} Expected the path of "
                "an image in that folder; the suffix may be missing if only one image fits."
            )
        values = [_read_label(row[name], task) for name in columns]
        if None in values:
            name = columns[values.index(None)]
            raise ConfigError(
                f"{place}: the column {name} has {shown(row[name])}, expected {_EXPECTED[task]}. "
                f"{_list_columns(header)} For regression give task='regression'."
            )
        if found.setdefault(image, values) != values:
            raise ConfigError(f"{place}: {path} has other labels in an earlier row. Remove one.")
    further = [name for name in header if name not in (path_name, *columns)]
    if further or len(found) < len(files):
        unused = counted(len(files) - len(found), "image")
        columns_in_words = f"{counted(len(further), 'column')} ({listed(map(shown, further))})"
        log.warning("%s: skipped %s, and %s without a row.", table, columns_in_words, unused)
    images = [file for file in files if file in found]
    return images, tuple(columns), np.array([found[image] for image in images]), task


def _read_rows(table: Path) -> tuple[list[str], list[tuple[int, dict[str, Any]]]]:
    """Returns the names of the columns; and the line and the cells of each row."""
    line, header = 1, list[str]()
    rows: list[tuple[int, dict[str, Any]]] = []
    try:
        text = table.read_text(encoding="utf-8-sig")
        if table.suffix.lower() == ".jsonl":
            for line, stored in enumerate(text.split("\n"), 1):
                if stored.strip():
                    values = dict(json.loads(stored)).items()
                    rows.append((line, {name: _as_cell(value) for name, value in values}))
            header = list(dict.fromkeys(name for _, row in rows for name in row))
            rows = [(line, dict.fromkeys(header, "") | row) for line, row in rows]
        else:
            sign = max(",;\t", key=text.partition("\n")[0].count)
            reader = csv.reader(io.StringIO(text), delimiter=sign)
            for row in reader:
                line = reader.line_num
                if not header:
                    header = [cell.strip() for cell in row]
                elif any(row):
                    rows.append((line, dict(zip(header, row, strict=True))))
    except (OSError, TypeError, ValueError, csv.Error, RecursionError) as error:
        raise ConfigError(
            f"{table}, line {line}: this table of labels cannot be read ({error}). Expected UTF-8, "
            "a header, and rows with as many cells; or a row of JSON per line in a file .jsonl."
        ) from error
    if not rows:
        raise ConfigError(f"{table}: expected a header and a row per image, found no row.")
    return header, rows


def _as_cell(value: Any) -> Any:
    """Returns a JSON value as a CSV cell; lists and objects stay, and are not labels."""
    if isinstance(value, (list, dict)):
        return value
    return "" if value is None else str(value)


def _choose_columns(
    table: Path,
    header: list[str],
    rows: list[tuple[int, dict[str, Any]]],
    path_column: str | None,
    label_column: Columns,
    task: Task | None,
) -> tuple[str, list[str]]:
    """Returns the column of paths and the columns of labels."""
    path = path_column or _find_name(_PATHS, header)
    further = [name for name in header if name not in ("", path)]
    labels = label_column or _find_name(_LABELS, further) or further
    labels = [labels] if isinstance(labels, str) else list(labels)
    if labels == further and task != "regression" and len(further) > 1:
        cells = {key: [_read_label(row[key], "regression") for _, row in rows] for key in further}
        numeric = [name for name in further if None not in cells[name]]
        labels = numeric if len(numeric) > 1 else further
    if task == "single_label" and len(labels) > 1:
        labels = []
    for name in (path, *(labels or [""])):
        if not name or header.count(name) != 1:
            wanted = shown(name) if name else "of labels" if path else "of paths"
            raise ConfigError(f"{table}: expected one column {wanted}. {_list_columns(header)}")
    return str(path), labels


def _find_name(known: Sequence[str], header: list[str]) -> str:
    columns = {name.lower(): name for name in header}
    return next((columns[name] for name in known if name in columns), "")


def _list_columns(header: list[str]) -> str:
    return f"The columns are {listed(header, 20)}; give path_column= and label_column=."


def _read_label(cell: Any, task: Task) -> float | str | None:
    """Returns a name, a number, or 0 or 1; None for a cell that has none."""
    if task == "single_label":
        return cell if isinstance(cell, str) and cell.strip() else None
    with contextlib.suppress(TypeError, ValueError):
        number = float(cell)
        if number in (0, 1) if task == "multi_label" else abs(number) <= MOST_NUMBER:
            return number
    return None


def _name_images(root: Path, files: Sequence[str]) -> dict[str, str]:
    """Returns the images by their paths in the folder, and by unique paths without suffix."""
    paths = [_normal(Path(file).relative_to(root).as_posix()) for file in files]
    stems = [os.path.splitext(path)[0] for path in paths]  # noqa: PTH122
    counts = collections.Counter(stems)
    unique = {stem: file for stem, file in zip(stems, files, strict=True) if counts[stem] == 1}
    return unique | dict(zip(paths, files, strict=True))


def _spellings(path: str, root: Path) -> Iterator[str]:
    """Yields the paths in the folder that a path of a table may mean, the likeliest first.

    They are the path itself, its part below the folder, and the ends of an absolute path from
    another machine, the longest first.
    """
    stated = PureWindowsPath(_normal(path))  # reads / and \
    yield stated.as_posix()
    here = Path(stated.as_posix()).absolute()
    if here.is_relative_to(root.absolute()):
        yield here.relative_to(root.absolute()).as_posix()
    if stated.anchor:
        yield from ("/".join(stated.parts[k:]) for k in range(1, len(stated.parts)))


def _normal(path: str) -> str:
    """Returns the form of a path that is compared: some systems write an umlaut as two letters."""
    return unicodedata.normalize("NFC", path)
