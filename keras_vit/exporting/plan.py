"""What one export shall be, as plain data that a child process can be told."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError, nearest
from keras_vit.exporting import pixels
from keras_vit.images.protocols import ProtocolSpec

OUTPUTS = ("probabilities", "logits", "features")
PRECISIONS = ("float32", "float16", "int8")
Size = tuple[int, int]
_Side = TypeVar("_Side", int, int | None)


@dataclasses.dataclass(frozen=True)
class ExportPlan:
    """One export.

    Args:
        format: name of a format.
        outputs: `"probabilities"`, `"logits"` or `"features"`.
        prepares: what the graph does to images before the model: `"resize"` takes uint8 images of
            any size, `"scale"` uint8 images of the model's size, `"nothing"` prepared floats.
        image_size: (height, width) of the model, or None for any.
        channels: of the images.
        batch: images of each call, or None for any number.
        precision: `"float32"`, `"float16"` or `"int8"`.
        protocol: how images are prepared.
        scaled: whether the model takes pixels in the protocol's range; else in [0, 255].
        channels_first: whether the graph takes `(batch, channels, height, width)`.
        unit: pixels of the smallest step of an image's side.
        input: name of the graph's input.
    """

    format: str
    outputs: str
    prepares: Literal["resize", "scale", "nothing"]
    image_size: Size | None
    channels: int
    batch: int | None
    precision: str
    protocol: ProtocolSpec
    scaled: bool
    channels_first: bool
    unit: Size
    input: str = "images"

    @property
    def input_dtype(self) -> str:
        """`"uint8"` where the graph prepares images, else `"float32"`."""
        return "float32" if self.prepares == "nothing" else "uint8"

    @property
    def input_shape(self) -> tuple[int | None, ...]:
        """Shape of the graph's input, with the batch; None for what is open."""
        if self.image_size is None or self.prepares == "resize":
            return self.shape(self.batch, None, None)
        return self.shape(self.batch, *self.image_size)

    def shape(self, batch: _Side, height: _Side, width: _Side) -> tuple[int | _Side, ...]:
        """Returns the sizes in the order of the graph's input."""
        if self.channels_first:
            return batch, self.channels, height, width
        return batch, height, width, self.channels

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types; `from_dict` is its inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "ExportPlan":
        """Returns the plan that `to_dict` told, also after it was JSON."""
        pairs = {key: stored[key] and tuple(stored[key]) for key in ("image_size", "unit")}
        return cls(**{**stored, **pairs})


def chosen(name: str, value: str, known: tuple[str, ...]) -> str:
    """Returns `value`.

    Raises:
        ConfigError: it is not one of `known`.
    """
    if value not in known:
        raise ConfigError(
            f"{name}={value!r} is not one of {', '.join(known)}.{nearest(str(value), known)}"
        )
    return value


def check_outputs(outputs: str, config: ViTConfig) -> str:
    """Returns `outputs`.

    Raises:
        ConfigError: it is unknown, or the model has no such outputs.
    """
    chosen("outputs", outputs, OUTPUTS)
    if outputs != "features" and config.num_classes == 0:
        raise ConfigError(
            f"outputs={outputs!r}: a model with num_classes=0 has no head. Export its features "
            "with outputs='features'."
        )
    return outputs


def preparation(
    preprocessing: bool, config: ViTConfig, protocol: ProtocolSpec, sizes_stay_open: bool
) -> tuple[Literal["resize", "scale", "nothing"], str | None]:
    """Returns what the graph does to images, and why it does less than was asked for, or None.

    Args:
        preprocessing: whether the graph shall prepare images.
        config: of the model.
        protocol: how images are prepared.
        sizes_stay_open: whether the format takes images of every size.
    """
    if not preprocessing:
        return "nothing", None
    if reason := pixels.refusal(protocol, config.image_size):
        return "nothing", f"{reason} cannot be expressed, so the input is prepared float images"
    if config.image_size is None:
        return "scale", None
    if not sizes_stay_open:
        return "scale", "the format takes one size, so images are resized before"
    return "resize", None
