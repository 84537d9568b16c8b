"""Options that several commands share."""

import ast
import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from keras_vit.models import building

Positive = Annotated[int, Parameter(validator=Number(gte=1))]
"""An integer above 0."""

Share = Annotated[float, Parameter(validator=Number(gte=0, lt=1))]
"""A number in [0, 1)."""

Pixels = Annotated[tuple[Positive, ...], Parameter(consume_multiple=(1, 2))]
"""One number of pixels for a square, or height and width."""


PixelRange = Annotated[tuple[float, float] | None, Parameter(consume_multiple=True)]
"""Values of black and white in images of more than 8 bits, such as 0 4095 for 12 bits."""
ImageTask = Literal["single_label", "multi_label", "regression"]
"""The tasks of `keras_vit.config.Task` whose labels describe a whole image."""
DType = Literal["float32", "mixed_bfloat16", "mixed_float16"]
"""Dtype policy of a model."""


def drop_unset(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options without those that are None or False; 0 counts as stated."""
    return {k: v for k, v in options.items() if v is not None and v is not False}


def make_options(kind: Any, without: Iterable[str], **defaults: Any) -> Any:
    """Returns a dataclass of options with the fields and the help of another one.

    An option that is not stated is None, or has another default, so that the command can choose
    the dataclass that it fills.
    """
    types: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(kind)}
    fields = [
        (name, of_field | None, defaults.get(name))
        for name, of_field in types.items()
        if name not in without
    ]
    place = {"__doc__": kind.__doc__, "__module__": __name__}  # cyclopts reads the help there
    return dataclasses.make_dataclass(kind.__name__, fields, namespace=place, frozen=True)


def shown_default(value: Any) -> Any:
    """Returns a default as it is typed; None for a switch or an option without a default."""
    if value is None or isinstance(value, bool):
        return None
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _read_argument(text: str) -> tuple[str, Any]:
    """Returns name and value of `name=value`; a value that is not a Python literal is a string.

    Text without a name is the name of the model.
    """
    name, _, value = text.partition("=") if "=" in text else ("model_name", "", text)
    with contextlib.suppress(ValueError, SyntaxError):
        return name, ast.literal_eval(value)
    return name, value


_READ = Parameter(name="*", group="How the source is read")


@_READ
@dataclasses.dataclass(frozen=True)
class Fields:
    """Facts that the files of a checkpoint do not state, or that the user changes.

    Args:
        image_size: image size in pixels, or height and width; position embeddings are resized to
            it. By default the size in the files.
        num_heads: number of attention heads, if the files do not state it.
        position_grid: rows and columns of the stored position embeddings, if they are not square or
            fit two grids.
        prefix: common prefix of the array names, if the file holds several models.
        weights: ema for the moving average of the weights, raw for the weights themselves.
        ignore: name of an array to skip, or a pattern such as 'decoder.*'.
        timm: timm architecture, such as vit_large_patch16_224, or an argument of timm.create_model
            from the model card, as NAME=VALUE; repeat it for several.
        allow_pickle_weights: read a .bin or .pth file with torch.load(weights_only=True); see
            SECURITY.md.
    """

    image_size: Pixels | None = None
    num_heads: Positive | None = None
    position_grid: tuple[Positive, Positive] | None = None
    prefix: str | None = None
    weights: Literal["ema", "raw"] | None = None
    ignore: tuple[str, ...] | None = None
    timm: tuple[str, ...] | None = None
    allow_pickle_weights: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns the arguments that the user has stated, those on how to read in `read`."""
        stated = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        card = None if self.timm is None else dict(map(_read_argument, self.timm))
        size = self.image_size and (self.image_size * 2)[:2]  # one number for a square
        stated = drop_unset({**stated, "image_size": size, "timm": card})
        read = {key: stated.pop(key) for key in building.Reading.__annotations__ if key in stated}
        return {**stated, "read": read}


@_READ
@dataclasses.dataclass(frozen=True)
class Reading(Fields):
    """How a checkpoint or preset is read.

    Args:
        family: library that wrote the file, such as timm, if its array names fit several.
    """

    family: str | None = None


@_READ
@dataclasses.dataclass(frozen=True)
class Loading(Reading):
    """How a model is loaded for prediction.

    Args:
        dtype: dtype policy of the model, for 16-bit arithmetic; by default that of Keras.
        pixel_range: values of black and white in images of more than 8 bits, such as 0 4095.
        draft: scaled decoding of large JPEG files, which is faster and changes pixels slightly.
    """

    dtype: DType | None = None
    pixel_range: PixelRange = None
    draft: bool = False


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Labelled:
    """Where the labels of the images are.

    Args:
        split: split of a tfds: or hf: data set; by default train for training, else test.
        labels_file: table of labels for a folder of images, CSV with a header or JSON lines.
        path_column: its column of paths, if not path, file_name, filename, image, image_id or id.
        label_column: its column of labels, or that of a tfds: or hf: data set; repeat it for
            several.
        task: task of the table, by default single_label for one column of labels, and multi_label
            for several; regression for numeric targets, such as an age.
        on_error: raise stops at an image that cannot be read, skip continues without it.
    """

    split: str | None = None
    labels_file: str | None = None
    path_column: str | None = None
    label_column: tuple[str, ...] | None = None
    task: ImageTask | None = None
    on_error: Literal["raise", "skip"] = "raise"

    def to_dict(self) -> dict[str, Any]:
        """Returns the value of `keras_vit.data.ImageSource.labels`."""
        labels = {name: value for name, value in vars(self).items() if name != "on_error"}
        if self.label_column is not None and len(self.label_column) == 1:
            (labels["label_column"],) = self.label_column
        return labels
