"""From a path to open arrays: a file, or a folder as the Hub and the libraries write it."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.containers import Reader, joined, open_arrays
from keras_vit.errors import CheckpointError

MOST_JSON_BYTES = 16 * 2**20  # 21,843 labels twice over need about two
INDEX = "model.safetensors.index.json"
COMPANIONS = (
    "config.json",  # ours, timm, transformers, keras-hub
    "preprocessor_config.json",  # transformers
    "task.json",  # these and the rest: keras-hub
    "preprocessor.json",
    "image_converter.json",
    "metadata.json",
)
"""What stands beside the weights and says how to read them; other JSON is not looked at."""
_TASK = "task.weights.h5"


@contextlib.contextmanager
def open_source(path: str | os.PathLike[str]) -> Iterator[tuple[Reader, dict[str, Any]]]:
    """Yields the arrays of a checkpoint, and the JSON files beside them by name.

    Args:
        path: a file of weights, which stands for itself alone; or a folder with
            `model.safetensors` (whole or sharded), `model.weights.h5` (with or
            without `task.weights.h5`), or one other file of weights.

    Raises:
        CheckpointError: there are no weights, or several, or a file is damaged.
    """
    path = Path(path)
    if not path.is_dir():
        with open_arrays(path) as reader:
            yield reader, {}
        return
    paths = [path / name for name in COMPANIONS]
    files = {file.name: read_object(file) for file in paths if file.exists()}
    with contextlib.ExitStack() as stack:
        readers = [(prefix, stack.enter_context(open_arrays(p))) for prefix, p in _weights(path)]
        yield (readers[0][1] if len(readers) == 1 else joined(path, readers)), files


def _weights(folder: Path) -> list[tuple[str, Path]]:
    """The files of weights in a folder, each with what its names get in front."""
    if (folder / "model.safetensors").is_file():
        return [("", folder / "model.safetensors")]
    if (folder / INDEX).is_file():
        return _shards(folder)
    if (folder / "model.weights.h5").is_file():
        task = [("task/", folder / _TASK)] if (folder / _TASK).is_file() else []
        if task and not (folder / "config.json").is_file():
            raise CheckpointError(
                f"{folder / _TASK}: config.json and task.json are missing beside it, so it is not "
                "told which of its layers is the head."
            )
        return [("", folder / "model.weights.h5"), *task]
    found = sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".npz"))
    if len(found) != 1:
        pickles = [p.name for p in folder.iterdir() if p.suffix in (".bin", ".pth", ".pt", ".ckpt")]
        if pickles and not found:
            open_arrays(folder / pickles[0])  # refuses it, and says what to do
        names = ", ".join(p.name for p in found) or "none"
        raise CheckpointError(
            f"{folder}: expected one file of weights (model.safetensors, {INDEX}, "
            f"model.weights.h5 or an npz), found {names}."
        )
    return [("", found[0])]


def _shards(folder: Path) -> list[tuple[str, Path]]:
    weight_map = read_object(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{folder / INDEX}: expected a weight_map of names to files.")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"{folder / INDEX}: {name!r} is no file name of this folder.")
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name}: named by {INDEX}, but it does not exist.")
    return [("", folder / name) for name in names]


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object of a file. Raises `CheckpointError`."""
    try:
        if path.stat().st_size > MOST_JSON_BYTES:
            raise CheckpointError(f"{path}: {path.stat().st_size} bytes are too many for JSON.")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a readable JSON file ({error}).") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(content).__name__}.")
    return content
