"""Types of arguments with a few string values, and checks of folders, files and data sets.

This module does not import Keras, so that an error is raised at once: a public function checks its
arguments first, and the command of the same name runs the same check before it imports Keras.
The checks use `os.path` because it never raises: a path that is too long does not exist.
"""

# ruff: noqa: PTH110, PTH112, PTH113

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from keras_vit.errors import ConfigError, listed, shown
from keras_vit.support.files import check_place
from keras_vit.support.text import log

DATA_SETS = ("tfds", "hf")
"""Prefixes of the names of data sets: TensorFlow Datasets and Hugging Face."""


OnError: TypeAlias = Literal["raise", "skip"] | Callable[[Any, ConfigError], object]
"""What to do with an image that cannot be read: `"raise"` the error; `"skip"` the image with a
warning; or skip it and call a function with the image, as the user gave it, and the error."""

Format: TypeAlias = Literal["onnx", "openvino", "torch", "saved_model", "litert"]
"""The formats of `keras_vit.export`."""
Outputs: TypeAlias = Literal["probabilities", "logits", "features"]
Precision: TypeAlias = Literal["float32", "float16", "int8"]
AugmentationName: TypeAlias = Literal[
    "none", "crop_flip", "light1", "light2", "medium1", "medium2", "strong1", "strong2"
]
"""The names of `keras_vit.data.AUGREG`, and `"none"` for unchanged images."""
Method: TypeAlias = Literal[
    "relevance", "integrated_gradients", "gradcam", "occlusion", "rollout", "attention"
]
AnyMethod: TypeAlias = Method | Literal["random", "centre"]
"""The methods of `keras_vit.explain`; the last two are baselines."""


def check_on_error(on_error: Any) -> Callable[[Any, ConfigError], object] | None:
    """Returns the function to call for each skipped image; None if errors are raised.

    Raises:
        ConfigError: `on_error` is not a value of `OnError`.
    """
    if on_error == "raise":
        return None
    if on_error == "skip":
        return lambda _, error: log.warning("%s Skipped.", error)
    if not callable(on_error):
        raise ConfigError(
            f"on_error={shown(on_error)}: expected 'raise', 'skip' or a function of the image and "
            "the error."
        )
    return on_error


def is_data_set(name: object) -> bool:
    """Whether a name, such as `"tfds:mnist"`, is that of a data set rather than a folder."""
    kind, _, inside = str(name).partition(":")
    return kind in DATA_SETS and bool(inside)


def check_images(paths: Iterable[Path]) -> None:
    """Checks that the paths of images exist.

    Raises:
        ConfigError: a path does not exist.
    """
    if absent := [str(path) for path in paths if not os.path.lexists(path)]:
        raise ConfigError(f"{listed(absent)}: no such file or folder.")


def check_data(
    name: object,
    *,
    split: str | None = None,
    label_column: object = None,
    is_labelled: bool = True,
    **of_folder: object,
) -> None:
    """Checks the source of labelled images, and where their labels are.

    Args:
        name: a folder or a data set.
        split, label_column, **of_folder: arguments of `keras_vit.data.ImageSource`.
        is_labelled: whether images of a folder need labels.

    Raises:
        ConfigError: the name is empty or not a path; a split is given for a folder, or a table of
            labels for a data set; or as `check_folder`.
    """
    if not isinstance(name, (str, os.PathLike)) or name == "":  # Path("") is the working folder
        found = "an empty name" if isinstance(name, str) else type(name).__name__
        raise ConfigError(
            f"Expected a folder, tfds:NAME or hf:OWNER/NAME, found {found}. For images in memory "
            "use keras_vit.data.from_arrays."
        )
    if not is_data_set(name):
        if split is not None:
            raise ConfigError(f"{name}: a folder has no split {split!r}; give the split's folder.")
        check_folder(Path(name), label_column=label_column, is_labelled=is_labelled, **of_folder)
    elif given := _given(of_folder):
        raise ConfigError(f"{name}: {listed(given)} needs a folder; a data set has label_column=.")


def check_folder(
    root: Path, labels_file: Any = None, *, is_labelled: bool = True, **of_table: object
) -> None:
    """Checks the folder of images, and its table or folders of labels.

    Raises:
        ConfigError: the folder or the table does not exist; `of_table` is given without a table;
            or the folder has neither a table nor class folders.
    """
    if not os.path.isdir(root):
        expected = "a folder of images"
        if is_labelled and not labels_file:
            expected = "a folder with a folder of images per class"
        actual = "a file" if os.path.exists(root) else "nothing"
        raise ConfigError(f"{root}: expected {expected}, found {actual}.")
    if labels_file is None:
        if given := _given(of_table):
            raise ConfigError(f"{root}: {listed(given)} needs a table of labels, labels_file=.")
        # If the folder cannot be listed, listing its images raises the error later.
        folders = next(os.walk(root), ("", ["unknown"], []))[1]
        if is_labelled and all(name.startswith(".") for name in folders):
            raise ConfigError(
                f"{root}: expected a folder of images per class, found no folder. If the labels "
                "are in a table, give labels_file=."
            )
    elif not os.path.isfile(find_table(root, labels_file)):
        raise ConfigError(
            f"labels_file={str(labels_file)!r}: not found, neither in {root} nor here."
        )


def _given(of_table: Mapping[str, object]) -> list[str]:
    """Returns the names of the arguments that only a table of labels can satisfy."""
    return [f"{word}=" for word, value in of_table.items() if value and value != "single_label"]


def find_table(root: Path, labels_file: str | os.PathLike[str]) -> Path:
    """Returns the path of a table of labels, which may be relative to the folder of its images."""
    return root / labels_file if os.path.isfile(root / labels_file) else Path(labels_file)


def check_results(path: Path) -> None:
    """Checks that results can be written to a folder, which may exist.

    Raises:
        ConfigError: the path is a file.
        WriteError: the folder cannot be written.
    """
    if os.path.exists(path) and not os.path.isdir(path):
        raise ConfigError(f"{path}: expected a folder for the results, found a file.")
    check_place(path)


def check_apart(path: Path, folder: object) -> None:
    """Refuses results in the folder of the images, where they would become a class.

    Raises:
        ConfigError: `path` is that folder or inside it.
    """
    if not isinstance(folder, (str, os.PathLike)) or is_data_set(folder):
        return
    if path.resolve().is_relative_to(Path(folder).resolve()):
        raise ConfigError(
            f"path={str(path)!r} is inside the folder of the images. Give another folder."
        )


def check_training(
    data: object,
    path: Path,
    *,
    resume: bool = False,
    validation: object = None,
    **labels: Any,
) -> None:
    """Checks the data and folders of `keras_vit.finetune` and `keras_vit.pretrain`.

    Args:
        data, **labels: arguments of `check_data`.
        path, resume, validation: arguments of `keras_vit.finetune`.

    Raises:
        ConfigError: `path` is a file, is not empty without `resume`, or is inside a folder of
            images per class; or as `check_data`.
    """
    check_new(path, resume)
    check_data(data, **labels)
    has_folders = labels.get("labels_file") is None and not is_data_set(data)
    if has_folders:
        check_apart(path, data)
        check_apart(path, validation)
    if not isinstance(validation, (str, os.PathLike)) or is_data_set(data):
        return
    check_data(validation, **labels)
    inside = Path(validation).resolve().is_relative_to(Path(str(data)).resolve())
    if has_folders and inside and not is_data_set(validation):
        raise ConfigError(
            f"{validation} is inside {data}, the training images. Move it out of that folder, so "
            "that validation uses other images."
        )


def check_new(path: Path, resume: bool = False) -> None:
    """Checks the output folder of a training run.

    Raises:
        ConfigError: the folder is not empty, or is a file, and `resume` is False.
        WriteError: the folder cannot be written.
    """
    taken = os.path.exists(path) and (not os.path.isdir(path) or any(path.iterdir()))
    if taken and not resume:
        raise ConfigError(
            f"{path}: exists already. Choose another folder, or continue the training in it with "
            "resume=True."
        )
    check_place(path)
