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
"""What labels say of a whole image, among `keras_vit.config.Task`."""
DType = Literal["float32", "mixed_bfloat16", "mixed_float16"]
"""Dtype policy of a model."""


def drop_unset(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options without those that are None or False; 0 counts as stated."""
    return {k: v for k, v in options.items() if v is not None and v is not False}


def make_options(kind: Any, without: Iterable[str], **defaults: Any) -> Any:
    """Returns a dataclass of options with the fields of another one and its help.

    An option that is not stated is None, or has another default, so that the command can choose
    which dataclass it fills.
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
    """Returns a default as it is typed; None for an option that has none, or is a switch."""
    if value is None or isinstance(value, bool):
        return None
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _read_argument(text: str) -> tuple[str, Any]:
    """Returns name and value of `name=value`; a value that is no literal of Python is a text.

    A text without a name is the name of the model.
    """
    name, _, value = text.partition("=") if "=" in text else ("model_name", "", text)
    with contextlib.suppress(ValueError, SyntaxError):
        return name, ast.literal_eval(value)
    return name, value


_READ = Parameter(name="*", group="How the source is read")


@_READ
@dataclasses.dataclass(frozen=True)
class Fields:
    """Facts that the files of a checkpoint leave open, or that the user changes.

    Args:
        image_size: pixels of the images, or height and width, to which the positions are resized;
            by default those of the files.
        num_heads: number of attention heads, for files that do not state it.
        position_grid: rows and columns of patches that the stored positions are for, if they are
            no square or fit two grids.
        prefix: start of the names of the arrays, if the file holds several models.
        weights: ema for the average of the weights over a training, raw for the weights.
        ignore: name of an array to leave out, or a pattern such as 'decoder.*'.
        timm: architecture of timm, such as vit_large_patch16_224, or an argument of
            timm.create_model from the card of a model, as NAME=VALUE; once for each.
        allow_pickle_weights: read a .bin or .pth file, by torch's reader of plain weights; see
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
        family: library whose names the arrays have, if they fit several, such as timm.
    """

    family: str | None = None


@_READ
@dataclasses.dataclass(frozen=True)
class Loading(Reading):
    """How a model is loaded to answer.

    Args:
        dtype: dtype policy of the model, for 16-bit arithmetic; by default that of Keras.
        pixel_range: values of black and white in images of more than 8 bits, such as 0 4095.
        draft: decode large JPEG files at a part of their size, faster; pixels change a little.
    """

    dtype: DType | None = None
    pixel_range: PixelRange = None
    draft: bool = False


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class Labelled:
    """Where the labels of the images are.

    Args:
        split: split of tfds: or hf: data; by default train where a command trains, else test.
        labels_file: table of labels of a folder, CSV with a header or JSON lines.
        path_column: its column of paths, if not path, file_name, filename, image, image_id or id.
        label_column: its column of labels, or that of tfds: or hf: data; once for each of several.
        task: what the table has, by default a single label in one column, and multi-label in
            several; regression for numbers, such as an age.
        on_error: raise ends at an image that cannot be read, skip leaves it out.
    """

    split: str | None = None
    labels_file: str | None = None
    path_column: str | None = None
    label_column: tuple[str, ...] | None = None
    task: ImageTask | None = None
    on_error: Literal["raise", "skip"] = "raise"

    def to_dict(self) -> dict[str, Any]:
        """Returns what `keras_vit.data.ImageSource` has as `labels`."""
        labels = {name: value for name, value in vars(self).items() if name != "on_error"}
        if self.label_column is not None and len(self.label_column) == 1:
            (labels["label_column"],) = self.label_column
        return labels
