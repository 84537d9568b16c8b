"""`ImageSource`: labelled images by name, as on the command line."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from keras_vit.config import Task
from keras_vit.config.views import Views
from keras_vit.data.folders import from_folder
from keras_vit.data.huggingface import from_huggingface
from keras_vit.data.image_data import ImageData
from keras_vit.data.tfds import from_tfds
from keras_vit.errors import ConfigError
from keras_vit.support.arguments import OnError, check_data, is_data_set


@dataclasses.dataclass(frozen=True)
class ImageSource:
    """Names labelled images, a folder or a data set, and states how they are read.

    `keras_vit.finetune` and `keras_vit.probe` take it as their data; `read` gives the batches::

        photos = ImageSource("photos", labels_file="labels.csv", label_column="breed")
        keras_vit.finetune("vit_b16.augreg_i21k_224", photos, path="run")

    Args:
        name: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`.
        split: split of a tfds or hf data set; None for `"train"` where a function trains, and
            `"test"` otherwise. A folder has no splits.
        labels_file: table of the labels of a folder, see `keras_vit.data.from_folder`.
        path_column: name of its column of paths.
        label_column: name of its column of labels, or several; or of the feature or column of
            labels of a tfds or hf data set, by default `"label"`.
        task: task of a table of labels, see `keras_vit.data.from_folder`.
        on_error: `"raise"` for an error if an image cannot be read; `"skip"` to skip such images
            with a warning; or a function that is called with the name and the error of each.
    """

    name: str | os.PathLike[str]
    _: dataclasses.KW_ONLY
    split: str | None = None
    labels_file: str | os.PathLike[str] | None = None
    path_column: str | None = None
    label_column: str | Sequence[str] | None = None
    task: Task | None = None
    on_error: OnError = "raise"

    @property
    def labels(self) -> dict[str, Any]:
        """The arguments that locate the labels, by name."""
        return {k: v for k, v in vars(self).items() if k not in ("name", "on_error")}

    def for_training(self) -> "ImageSource":
        """Returns the source with the split `"train"` of a data set, unless it states another."""
        if self.split is not None or not is_data_set(self.name):
            return self
        return dataclasses.replace(self, split="train")

    def read(self, preprocessor: Any, **options: Any) -> ImageData:
        """Returns the batches of the images.

        Args:
            preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
            **options: optional arguments of `ImageData`, and `class_names` of a folder.

        Raises:
            ConfigError: the name is empty, the folder or table does not exist, an argument does not
                apply to a folder or to a data set, or the data cannot be read or downloaded.
        """
        labels = self.labels
        makes_views = isinstance(options.get("augmentation"), Views)
        check_data(self.name, is_labelled=not makes_views, **labels)
        name, split = os.fspath(self.name), labels.pop("split")
        options = {"on_error": self.on_error, **options}
        if is_data_set(name):
            kind, _, inside = name.partition(":")
            reader: Any = from_tfds if kind == "tfds" else from_huggingface
            column = {} if self.label_column is None else {"label_column": self.label_column}
            return reader(inside, preprocessor, split=split or "test", **column, **options)
        return from_folder(name, preprocessor, **labels, **options)

    def read_with_validation(
        self,
        preprocessor: Any,
        validation: float | str | os.PathLike[str] | None = 0.1,
        **options: Any,
    ) -> tuple[ImageData, ImageData | None]:
        """Returns training data and validation data.

        Args:
            preprocessor: as for `read`.
            validation: a fraction of the images, such as 0.1; another folder, or another split of
                the data set; or None for no validation.
            **options: as for `read`, for the training data. The validation data have the same form
                of labels and batch size, in order and without augmentation. Their classes are
                matched by name, and may be fewer.

        Raises:
            ConfigError: as `read`; or `validation` is invalid.
        """
        train = self.for_training().read(preprocessor, **options)
        if validation is None:
            return train, None
        if isinstance(validation, float | int):
            return train.hold_out(validation)
        shared = {k: v for k, v in options.items() if k not in ("augmentation", "steps_per_epoch")}
        shared["one_hot"] = train.one_hot
        if is_data_set(self.name) and not isinstance(validation, str):
            raise ConfigError(
                f"validation={validation!r}: expected a fraction, the name of a split or None."
            )
        place: dict[str, Any] = {"split" if is_data_set(self.name) else "name": validation}
        other = dataclasses.replace(self, **place)
        if train.task == "regression" and self.labels_file is not None:
            shared["class_names"] = train.class_names  # the columns
        return train, other.read(preprocessor, **shared).with_class_names(train.class_names)
