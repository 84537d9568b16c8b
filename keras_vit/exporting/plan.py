"""`ExportPlan`: an export as plain data, which a process of another backend can read."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from keras_vit.images.protocols import ProtocolSpec

_Side = TypeVar("_Side", int, int | None)


@dataclasses.dataclass(frozen=True)
class ExportPlan:
    """The format, outputs, preparation of images and precision of one export.

    Args:
        format: name of a format.
        outputs: `"probabilities"`, `"logits"` or `"features"`.
        prepares: preparation of images in the graph: `"resize"` takes uint8 images of
            any size, `"scale"` uint8 images of the model's size, `"nothing"` prepared floats.
        image_size: (height, width) of the model, or None for any.
        channels: number of channels of the images.
        batch: images of each call, or None for any number.
        precision: `"float32"`, `"float16"` or `"int8"`.
        protocol: preparation of images.
        scaled: whether the model takes pixels in the protocol's range; else in [0, 255].
        channels_first: whether the graph takes `(batch, channels, height, width)`.
        unit: pixels of the smallest step of an image's side.
        input: name of the graph's input.
        stages: names of the graph's outputs, and the stages of the model that give them; empty for
            one output, which is called as `outputs` says.
    """

    format: str
    outputs: str
    prepares: Literal["resize", "scale", "nothing"]
    image_size: tuple[int, int] | None
    channels: int
    batch: int | None
    precision: str
    protocol: ProtocolSpec
    scaled: bool
    channels_first: bool
    unit: tuple[int, int]
    input: str = "images"
    stages: Mapping[str, str] = dataclasses.field(default_factory=dict)

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

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ExportPlan":
        """Returns the plan whose fields were written as JSON."""
        pairs = {key: stored[key] and tuple(stored[key]) for key in ("image_size", "unit")}
        return cls(**{**stored, **pairs})
