"""`Format` declares a format, and `ExportPlan` describes an export in it as plain data.

A plan can be sent to a process of another backend.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.images.protocols import ProtocolSpec

INPUT = "images"
"""Name of the graph's input."""


@dataclasses.dataclass(frozen=True)
class ExportPlan:
    """The format, outputs, preparation of images and precision of one export.

    Args:
        format: name of a format.
        outputs: `"probabilities"`, `"logits"` or `"features"`.
        prepares: preparation of images in the graph: `"resize"` takes uint8 images of
            any size, `"scale"` uint8 images of the model's size, `"nothing"` prepared floats.
        config: configuration of the model, at the image size of the export.
        rescale: whether the model takes pixels in [0, 255].
        batch: number of images in each call, or None for any number.
        precision: `"float32"`, `"float16"` or `"int8"`.
        protocol: preparation of images.
    """

    format: str
    outputs: str
    prepares: Literal["resize", "scale", "nothing"]
    config: ViTConfig
    rescale: bool
    batch: int | None
    precision: str
    protocol: ProtocolSpec

    @property
    def input_dtype(self) -> str:
        """`"uint8"` where the graph prepares images, else `"float32"`."""
        return "float32" if self.prepares == "nothing" else "uint8"

    @property
    def input_shape(self) -> tuple[int | None, ...]:
        """Shape of the graph's input, with the batch; None for an axis of any length."""
        size = None if self.prepares == "resize" else self.config.image_size
        return self.batch, *(size or (None, None)), self.config.channels

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ExportPlan":
        """Returns the plan whose fields were written as JSON."""
        return cls(**{**stored, "config": ViTConfig.from_dict(stored["config"])})


@dataclasses.dataclass(frozen=True)
class Format:
    """The declaration of a format, in one file of the folder `formats`.

    Args:
        model: name of the model's file or folder.
        writes: modules that writing needs, and the extra of keras_vit that installs each.
        reads: modules that the runtime needs, and the extra that installs each.
        write: function that writes the graph of a plan into a folder, in a process of `backend`.
        program: program that runs the exported model without keras_vit, from `images` to `outputs`.
            The README prints it, and the comparison runs it; `{images}` is replaced by the lines
            that read a photograph.
        further: names of further files or folders of the format.
        backend: backend that writes the format.
        any_size: whether the input may have any height and width.
        precisions: precisions that the format can hold.
        quantises: modules that int8 needs in addition to `writes`, and the extra of each.
        takes_calibration: whether int8 can calibrate the ranges of activations on images.
        finish: last step of writing, which needs no backend: `(folder, plan, calibration)`.
        refusal: function that returns the reason why the format cannot hold a model, with another
            way, or None.
    """

    model: str
    writes: dict[str, str]
    reads: dict[str, str]
    write: Callable[[Any, ExportPlan, Path], None]
    program: str
    further: tuple[str, ...] = ()
    backend: str = "torch"
    any_size: bool = True
    precisions: tuple[str, ...] = ("float32",)
    quantises: dict[str, str] = dataclasses.field(default_factory=dict)
    takes_calibration: bool = False
    finish: Callable[[Path, ExportPlan, list[np.ndarray] | None], None] = lambda *_: None
    refusal: Callable[[ExportPlan], str | None] = lambda plan: None
