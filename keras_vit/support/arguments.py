"""Few words that an argument takes, and checks of places that a call names.

They import no Keras, so that an error comes at once.

A public function makes its check first, and the command of its name makes the same check before
it imports Keras. They ask `os.path`, which raises for no name: one that is too long does not exist.
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
"""Beginnings of names that stand for a data set of TensorFlow Datasets or Hugging Face."""


OnError: TypeAlias = Literal["raise", "skip"] | Callable[[Any, ConfigError], object]
"""An image that cannot be read ends the call (`"raise"`), or is left out with a warning (`"skip"`)
or with a call of a function of the image, in the user's form, and the error."""

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
    """Returns the function that receives each image that is left out; None if errors are raised.

    Raises:
        ConfigError: `on_error` is none of the values of `OnError`.
    """
    if on_error == "raise":
        return None
    if on_error == "skip":
        return lambda _, error: log.warning("%s Left out.", error)
    if not callable(on_error):
        raise ConfigError(
            f"on_error={shown(on_error)}: expected 'raise', 'skip' or a function of the image and "
            "the error."
        )
    return on_error


def is_data_set(name: object) -> bool:
    """Whether a name is that of a data set, such as `"tfds:mnist"`, and not of a folder."""
    kind, _, inside = str(name).partition(":")
    return kind in DATA_SETS and bool(inside)


def check_images(paths: Iterable[Path]) -> None:
    """Checks that the paths of images exist.

    Raises:
        ConfigError: a path leads nowhere.
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
    """Checks the name of labelled images, and where their labels are.

    Args:
        name: a folder or a data set.
        split, label_column, **of_folder: arguments of `keras_vit.data.ImageSource`.
        is_labelled: whether images of a folder need labels.

    Raises:
        ConfigError: the name is empty or no path; a split is given for a folder, or a table of
            labels for a data set; or as `check_folder`.
    """
    if not isinstance(name, (str, os.PathLike)) or name == "":  # Path("") is the working folder
        found = "an empty name" if isinstance(name, str) else type(name).__name__
        raise ConfigError(
            f"Expected a folder, tfds:NAME or hf:OWNER/NAME, found {found}. Images in memory "
            "become data by keras_vit.data.from_arrays."
        )
    if not is_data_set(name):
        if split is not None:
            raise ConfigError(f"{name}: a folder has no split {split!r}; name the part's folder.")
        check_folder(Path(name), label_column=label_column, is_labelled=is_labelled, **of_folder)
    elif given := _given(of_folder):
        raise ConfigError(f"{name}: a data set has no {listed(given)}; name its label_column=.")


def check_folder(
    root: Path, labels_file: Any = None, *, is_labelled: bool = True, **of_table: object
) -> None:
    """Checks the folder of images, and its table or folders of labels.

    Raises:
        ConfigError: the folder or the table does not exist, there is no table for `of_table`, or
            neither a table nor a folder in the folder.
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
        # A folder that cannot be listed has a message when its images are.
        folders = next(os.walk(root), ("", ["unknown"], []))[1]
        if is_labelled and all(name.startswith(".") for name in folders):
            raise ConfigError(
                f"{root}: expected a folder of images per class, found no folder. Labels in a "
                "table are given by labels_file=."
            )
    elif not os.path.isfile(find_table(root, labels_file)):
        raise ConfigError(
            f"labels_file={str(labels_file)!r}: no such table, neither in {root} nor here."
        )


def _given(of_table: Mapping[str, object]) -> list[str]:
    """Returns the names of the arguments that only a table of labels can satisfy."""
    return [f"{word}=" for word, value in of_table.items() if value and value != "single_label"]


def find_table(root: Path, labels_file: str | os.PathLike[str]) -> Path:
    """Returns the path of a table of labels; a relative path may begin in its folder of images."""
    return root / labels_file if os.path.isfile(root / labels_file) else Path(labels_file)


def check_results(path: Path) -> None:
    """Checks the folder for results, which may exist.

    Raises:
        ConfigError: it is a file.
        WriteError: the system refuses to write in it.
    """
    if os.path.exists(path) and not os.path.isdir(path):
        raise ConfigError(f"{path}: expected a folder for the results, found a file.")
    check_place(path)


def check_apart(path: Path, folder: object) -> None:
    """Refuses results in the folder of the images, where they would become a class.

    Raises:
        ConfigError: `path` is the folder or lies in it.
    """
    if not isinstance(folder, (str, os.PathLike)) or is_data_set(folder):
        return
    if path.resolve().is_relative_to(Path(folder).resolve()):
        raise ConfigError(
            f"path={str(path)!r} lies in the folder of the images. Name another folder."
        )


def check_training(
    data: object,
    path: Path,
    *,
    resume: bool = False,
    validation: object = None,
    **labels: Any,
) -> None:
    """Checks the places of a training, as `keras_vit.finetune` and `keras_vit.pretrain` take them.

    Args:
        data, **labels: as of `check_data`.
        path, resume, validation: as of `keras_vit.finetune`.

    Raises:
        ConfigError: `path` is a file, not empty without `resume`, or lies in a folder of images per
            class; or as `check_data`.
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
            f"{validation} lies in {data}, the folder of the images to train on. Move it, so that "
            "it measures on other images."
        )


def check_new(path: Path, resume: bool = False) -> None:
    """Checks the folder for a training.

    Raises:
        ConfigError: the folder is not empty, or is a file, and `resume` is False.
        WriteError: the system refuses to write in it.
    """
    taken = os.path.exists(path) and (not os.path.isdir(path) or any(path.iterdir()))
    if taken and not resume:
        raise ConfigError(
            f"{path}: exists already. Choose another folder, or continue the training in it with "
            "resume=True."
        )
    check_place(path)
