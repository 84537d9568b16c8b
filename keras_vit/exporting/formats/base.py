"""`Format`: the declaration of an export format."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.exporting.plan import ExportPlan

Run = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Format:
    """A format, as one file of this folder declares it.

    Args:
        model: name of the model's file or folder.
        writes: modules that writing needs, and the extra of keras_vit that installs each.
        reads: modules that the runtime needs, and the extra that installs each.
        write: function that writes the graph of a plan into a folder, in a process of `backend`.
        open: function that returns the artefact of a folder as a function of images.
        program: program of the README, which runs the artefact without keras_vit.
        beside: names of further files or folders of the format.
        backend: backend that writes the format.
        any_size: whether the input's height and width may stay open.
        precisions: precisions that the format can hold.
        quantises: modules that int8 needs beside `writes`, and the extra that installs each.
        takes_calibration: whether int8 can take the ranges of activations from images.
        open_int8: as `open`, for the int8 model that a folder holds beside the float32 one, or
            None.
        describe: function that writes the JSON of the format's readers beside the model, and
            returns the plan with the outputs that they expect; or None.
        finish: last step of writing, which needs no backend: `(folder, plan, calibration)`; or
            None.
        refusal: function that returns the reason why the format cannot hold a model, with another
            way, or None.
        channels_first: whether the format's readers give channels first.
        input: name of the input.
        prepares: whether the graph may prepare images.
    """

    model: str
    writes: dict[str, str]
    reads: dict[str, str]
    write: Callable[[Any, ExportPlan, Path], None]
    open: Callable[[Path, ExportPlan], Run]
    program: str
    beside: tuple[str, ...] = ()
    backend: str = "torch"
    any_size: bool = True
    precisions: tuple[str, ...] = ("float32",)
    quantises: dict[str, str] = dataclasses.field(default_factory=dict)
    takes_calibration: bool = False
    open_int8: Callable[[Path, ExportPlan], Run] | None = None
    describe: Callable[[Any, Path, ExportPlan], ExportPlan] | None = None
    finish: Callable[[Path, ExportPlan, list[np.ndarray] | None], None] | None = None
    refusal: Callable[[ExportPlan], str | None] = lambda plan: None
    channels_first: bool = False
    input: str = "images"
    prepares: bool = True
