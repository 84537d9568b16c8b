"""Labelled images by a name, as on the command line: a folder, tfds:NAME or hf:NAME."""

import os
from typing import Any

from keras_vit.data.folders import from_folder
from keras_vit.data.huggingface import from_huggingface
from keras_vit.data.image_data import ImageData
from keras_vit.data.tfds import from_tfds
from keras_vit.errors import ConfigError
from keras_vit.support.arguments import check_data, is_data_set


def from_name(
    name: str | os.PathLike[str],
    preprocessor: Any,
    *,
    split: str | None = None,
    labels_file: str | os.PathLike[str] | None = None,
    label_column: str | None = None,
    multi_label: bool = False,
    **options: Any,
) -> ImageData:
    """Returns the labelled images that a name stands for.

    Args:
        name: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`.
        preprocessor: a `Preprocessor` or a `VisionTransformer`.
        split: the split of a tfds or hf data set; None for `"test"`. A folder has no splits.
        labels_file: table of the labels of a folder, CSV or JSON, see `from_folder`.
        label_column: name of the feature or column of labels of a tfds or hf data set, by default
            `"label"`.
        multi_label: whether images have many labels.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: a split or a column is given for a folder, a table for a data set,
            or the data cannot be read or downloaded.
    """
    check_data(name, split, labels_file, label_column)
    name = os.fspath(name)
    if is_data_set(name):
        kind, _, inside = name.partition(":")
        read: Any = from_tfds if kind == "tfds" else from_huggingface
        column = {} if label_column is None else {"label_column": label_column}
        return read(inside, preprocessor, split=split or "test", **column, **options)
    return from_folder(
        name, preprocessor, labels_file=labels_file, multi_label=multi_label, **options
    )


def training_and_validation(
    name: str | os.PathLike[str],
    preprocessor: Any,
    *,
    split: str = "train",
    validation: float | str | os.PathLike[str] | None = 0.1,
    **options: Any,
) -> tuple[ImageData, ImageData | None]:
    """Returns training data and validation data.

    Args:
        name, preprocessor: as in `from_name`.
        split: split of a `tfds:` or `hf:` data set for the training.
        validation: a share of the images, such as 0.1; another folder, or another split of the
            data set; or None for no validation.
        **options: arguments of `ImageData`, for the training data. The validation data have the
            same labels and batch size, in order and without augmentation.

    Raises:
        ConfigError: as `from_name`; or `validation` is invalid.
    """
    is_folder = not is_data_set(name)
    train = from_name(name, preprocessor, split=None if is_folder else split, **options)
    if validation is None:
        return train, None
    if isinstance(validation, float | int):
        return train.hold_out(validation)
    shared = {k: v for k, v in options.items() if k not in ("augmentation", "steps_per_epoch")}
    shared["one_hot"] = train.one_hot
    if is_folder:
        return train, from_name(validation, preprocessor, class_names=train.class_names, **shared)
    if not isinstance(validation, str):
        raise ConfigError(f"validation={validation!r}: expected a share, a split's name or None.")
    return train, from_name(name, preprocessor, split=validation, **shared)
