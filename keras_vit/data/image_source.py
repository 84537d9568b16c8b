"""`ImageSource`: labelled images by a name, as on the command line."""

import dataclasses
import os
from typing import Any

from keras_vit.data.folders import from_folder
from keras_vit.data.huggingface import from_huggingface
from keras_vit.data.image_data import HELD_OUT, ImageData
from keras_vit.data.tfds import from_tfds
from keras_vit.errors import ConfigError
from keras_vit.support.arguments import OnError, check_data, is_data_set


@dataclasses.dataclass(frozen=True)
class ImageSource:
    """Labelled images of a folder or a data set: where they are, and how they are read.

    `keras_vit.finetune` and `keras_vit.probe` take it as their data; `read` gives the batches::

        photos = ImageSource("photos", labels_file="labels.csv", multi_label=True)
        keras_vit.finetune("vit_b16.augreg_i21k_224", photos, path="run")

    Args:
        name: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`.
        split: split of a tfds or hf data set; None for `"train"` where a function trains, and
            `"test"` otherwise. A folder has no splits.
        labels_file: table of the labels of a folder, CSV or JSON, see `keras_vit.data.from_folder`.
        label_column: name of the feature or column of labels of a tfds or hf data set, by default
            `"label"`.
        multi_label: whether an image of the table has many labels, or none.
        regression: whether the table has numbers to predict, such as an age.
        on_error: `"raise"`; or images that cannot be read are left out, by `"skip"` with a warning,
            or with a call of a function of each one's name and the error.
    """

    name: str | os.PathLike[str]
    _: dataclasses.KW_ONLY
    split: str | None = None
    labels_file: str | os.PathLike[str] | None = None
    label_column: str | None = None
    multi_label: bool = False
    regression: bool = False
    on_error: OnError = "raise"

    def check(self) -> None:
        """Refuses what can be refused before the images are read.

        Raises:
            ConfigError: the name is empty, or the folder or table does not exist; a split or a
                column of labels is given for a folder, or a table or `regression` for a data set.
        """
        check_data(self.name, self.split, self.labels_file, self.label_column)
        if self.regression and is_data_set(self.name):
            raise ConfigError(f"{self.name}: regression=True is for a folder, or for from_arrays.")

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
            ConfigError: as `check`; or the data cannot be read or downloaded.
        """
        self.check()
        name, options = os.fspath(self.name), {"on_error": self.on_error, **options}
        if is_data_set(name):
            kind, _, inside = name.partition(":")
            reader: Any = from_tfds if kind == "tfds" else from_huggingface
            column = {} if self.label_column is None else {"label_column": self.label_column}
            return reader(inside, preprocessor, split=self.split or "test", **column, **options)
        return from_folder(
            name,
            preprocessor,
            labels_file=self.labels_file,
            multi_label=self.multi_label,
            regression=self.regression,
            **options,
        )

    def read_with_validation(
        self,
        preprocessor: Any,
        validation: float | str | os.PathLike[str] | None = 0.1,
        **options: Any,
    ) -> tuple[ImageData, ImageData | None]:
        """Returns training data and validation data.

        Args:
            preprocessor: as of `read`.
            validation: a share of the images, such as 0.1; another folder, or another split of the
                data set; or None for no validation.
            **options: as of `read`, for the training data. The validation data have the same
                labels and batch size, in order and without augmentation.

        Raises:
            ConfigError: as `read`; or `validation` is invalid.
        """
        train = self.for_training().read(preprocessor, **options)
        if validation is None:
            return train, None
        if isinstance(validation, float | int):
            HELD_OUT.check("validation", validation)
            return train.hold_out(validation)
        shared = {k: v for k, v in options.items() if k not in ("augmentation", "steps_per_epoch")}
        shared["one_hot"] = train.one_hot
        if not is_data_set(self.name):
            held_out = dataclasses.replace(self, name=validation)
            return train, held_out.read(preprocessor, class_names=train.class_names, **shared)
        if not isinstance(validation, str):
            raise ConfigError(
                f"validation={validation!r}: expected a share, a split's name or None."
            )
        return train, dataclasses.replace(self, split=validation).read(preprocessor, **shared)
