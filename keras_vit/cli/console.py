"""Functions that the commands share: arguments, printing, progress, and lists of image files."""

import argparse
import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress, ProgressColumn, Task
from rich.table import Table
from rich.text import Text

from keras_vit.cli.screen import Screen
from keras_vit.errors import KerasViTError
from keras_vit.text import visible

console = Screen()


def positive(text: str) -> int:
    """Parses an argument that is an integer above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


def share(text: str) -> float:
    """Parses an argument that is a number in [0, 1)."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not in [0, 1)")
    return number


class ImageSize(argparse.Action):
    """Parses one number for a square, or height and width."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if len(values) > 2:
            parser.error(f"{option_string} {values}: expected one number, or height and width")
        setattr(namespace, self.dest, values[0] if len(values) == 1 else tuple(values))


def add_output(command: argparse.ArgumentParser, json_help: str) -> None:
    """Adds --csv and --json."""
    formats = command.add_mutually_exclusive_group()
    formats.add_argument("--csv", action="store_true", help="print comma-separated lines")
    formats.add_argument("--json", action="store_true", help=json_help)


def show(
    arguments: argparse.Namespace,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    whole: Any = None,
) -> None:
    """Prints rows as a table on a terminal, as tab-separated lines elsewhere, or as csv or JSON.

    Cells are never cut. The first line has the headings.

    Args:
        arguments: parsed arguments with `csv` and `json`.
        headings: headings of the columns.
        rows: one value per column; None for an empty cell.
        whole: the value that --json prints; None for a list of objects.
    """
    cells = [["" if value is None else str(value) for value in row] for row in rows]
    if arguments.json:
        objects = [dict(zip(headings, row, strict=True)) for row in cells]
        print(json.dumps(objects if whole is None else whole, indent=2))
    elif arguments.csv:
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([list(headings), *cells])
        print(visible(lines.getvalue(), lines=True), end="")
    elif console.is_terminal:
        table = Table(box=None, pad_edge=False)
        for k, heading in enumerate(headings):
            numbers = all(row[k].replace(".", "", 1).isdecimal() for row in cells if row[k])
            table.add_column(heading, overflow="fold", justify="right" if numbers else "left")
        for row in cells:
            table.add_row(*row)
        console.print(table)
    else:
        for row in [list(headings), *cells]:
            print("\t".join(visible(cell) for cell in row))


def images_per_second(stderr: Screen) -> Progress:
    """Returns a progress bar for images, which is disabled if stderr is no terminal."""
    columns = (*Progress.get_default_columns(), _ImagesPerSecond())
    return Progress(*columns, console=stderr, disable=not stderr.is_terminal)


def image_files(names: Iterable[str]) -> list[Path]:
    """Returns the given files and the images in the given folders, each once.

    A line on stderr states the number of hidden files that were left out.

    Raises:
        KerasViTError: a name is a URL, or a folder has no image in it or cannot be listed.
    """
    from keras_vit.images import list_images

    files: list[Path] = []
    for name in names:
        if "://" in name and not Path(name).exists():
            raise KerasViTError(f"{name}: URLs are not fetched here. Fetch it: curl -LO {name!r}")
        path = Path(name)
        if path.is_dir():
            found = list_images(path)
            if not found.images:
                raise KerasViTError(f"{path}: no image in this folder.")
            if found.hidden:
                Screen(stderr=True).print(
                    f"keras-vit: {path}: hidden files left out: {found.hidden}.", soft_wrap=True
                )
            files += map(Path, found.images)
        else:
            files.append(path)
    return list(dict.fromkeys(files))


class _ImagesPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} images/s")
