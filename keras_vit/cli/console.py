"""Functions that the commands share: printing, lists of image files, the model."""

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table

from keras_vit.errors import ConfigError, KerasViTError
from keras_vit.support import backend
from keras_vit.support.arguments import check_images
from keras_vit.support.progress import Screen, stderr
from keras_vit.support.text import counted, visible

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer


_LEAST_WIDTH = 30
_NUMBER = re.compile(r"[\d,]+(\.\d+)?%?")


console = Screen()
WORDS: list[str] = []
"""The words of the command that runs, without `keras-vit`; `main` fills it."""


def command_line(*words: object) -> str:
    """Returns a command of these words, by default the one that runs, as a shell reads it."""
    return shlex.join(["keras-vit", *map(str, words or WORDS)])


def tell(message: object) -> None:
    """Prints a whole line, which a terminal may wrap."""
    console.print(message, soft_wrap=True, highlight=False)


def warn_on_stderr(message: object) -> None:
    """Prints a line on stderr, so that stdout has the results only."""
    stderr.print(f"keras-vit: {message}", soft_wrap=True, highlight=False)


def start_backend(saves: bool = False) -> None:
    """Imports Keras and its backend; prints a note if the choice of the backend needs one.

    Args:
        saves: whether the command saves a model or draws seeds. Keras then imports TensorFlow too,
            if it is installed.

    Raises:
        BackendError: the backend is unknown or not installed.
    """
    note_backend()
    backend.start(saves=saves)


def note_backend() -> None:
    """Prints a note if the choice of the backend needs one.

    Raises:
        BackendError: as `start_backend`.
    """
    if reason := backend.refusal():
        raise reason
    if note := backend.note():
        warn_on_stderr(note)


def load_model(
    source: str,
    needs_head: str = "",
    *,
    takes_regression: bool = False,
    writes_maps: bool = False,
    **loading: Any,
) -> "VisionTransformer":
    """Loads a model for a command; an unsuitable source fails before a backend starts.

    Args:
        source: the source.
        needs_head: name of a command that needs one prediction per image; "" for other commands.
        takes_regression: whether this command takes a regression model.
        writes_maps: whether `predict` has a folder for maps, which models for segmentation and
            depth need and other models cannot use.
        **loading: as for `load_to_answer`.
    """
    from keras_vit.checkpoints import Source, reading

    checkpoint = Source.parse(source)
    if needs_head:
        of_model = ("dtype", "pixel_range", "draft")
        stated = {name: value for name, value in loading.items() if name not in of_model}
        description = reading.info(checkpoint, **stated)
        if writes_maps is (description.config.dense is None) and needs_head == "predict":
            raise ConfigError(
                "predict: models for segmentation and depth need --path, the folder for their "
                f"maps; other models have none. This one has task={description.prediction.task!r}."
            )
        if not writes_maps:
            description.config.demand_prediction(needs_head)
        if not writes_maps and not takes_regression:
            description.prediction.demand_classes(needs_head)
    start_backend()
    from keras_vit.checkpoints.loading import load_to_answer

    return load_to_answer(checkpoint, **loading)


def show(
    as_json: bool,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    whole: Any = None,
) -> None:
    """Prints rows as a table on a terminal, as tab-separated lines elsewhere, or as JSON.

    No cell is shortened, and only the last column is folded, so that names can be copied; the
    terminal wraps a wider table. The first line has the headings. Only a terminal gets integers
    with thousands separators.

    Args:
        as_json: whether the user has chosen JSON.
        headings: headings of the columns.
        rows: one value per column; None for an empty cell.
        whole: the value that JSON shows; None for a list of objects.
    """
    rows = [["" if value is None else value for value in row] for row in rows]
    if as_json:
        objects = [dict(zip(headings, map(str, row), strict=True)) for row in rows]
        print(json.dumps(objects if whole is None else whole, indent=2))
    elif console.is_terminal:
        cells = [[f"{v:,}" if type(v) is int else str(v) for v in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(headings, *cells, strict=True)]
        last = min(widths[-1], _LEAST_WIDTH)
        needed = sum(width + 2 for width in widths[:-1]) + last
        # An explicit width keeps rich from folding the columns into the terminal.
        own = None if needed <= console.width else needed
        table = Table(box=None, pad_edge=False, width=own)
        for k, heading in enumerate(headings):
            numbers = all(_NUMBER.fullmatch(row[k]) for row in cells if row[k])
            table.add_column(
                heading,
                overflow="fold",
                no_wrap=heading != headings[-1],
                justify="right" if numbers else "left",
            )
        for cells_of_row in cells:
            table.add_row(*cells_of_row)
        console.print(table, crop=False)
    else:
        for row in [list(headings), *rows]:
            print("\t".join(map(visible, row)))


def image_files(names: Iterable[str]) -> list[Path]:
    """Returns the files, and the images in the folders, each once.

    A line on stderr counts the hidden files that were skipped.

    Raises:
        KerasViTError: a name is a URL or does not exist, or a folder has no images or cannot be
            listed.
    """
    from keras_vit.images.image_files import list_images

    files: list[Path] = []
    for name in names:
        if not name:  # Path("") is the working folder
            raise KerasViTError("'': expected the path of an image or of a folder; it is empty.")
        if "://" in name and not Path(name).exists():
            raise KerasViTError(f"{name}: URLs are not supported. Download it: curl -LO {name!r}")
        path = Path(name)
        if path.is_dir():
            listed = list_images(path)
            if not listed.images:
                raise KerasViTError(f"{path}: no images in this folder.")
            if listed.hidden:
                warn_on_stderr(f"{path}: {counted(listed.hidden, 'hidden file')} skipped.")
            files += map(Path, listed.images)
        else:
            files.append(path)
    check_images(files)
    return list(dict.fromkeys(files))
