"""The questions that each format answers."""

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
        files: names of what a folder of this format may hold, beside what every folder holds.
        writes: modules that writing needs, and the extra of keras_vit that brings them.
        reads: likewise for the runtime.
        write: writes the graph of a plan into a folder, in the process of the right backend.
        describe: writes what the format's readers want beside the model; returns the plan with
            the outputs that they take.
        finish: last step, without a backend: `(folder, plan, calibration)`.
        open: returns the function that runs the artefact of a folder.
        open_int8: likewise for the int8 model that a folder holds beside the float32 one, or None.
        program: the program in the README, which runs the artefact without keras_vit.
        any_size: whether the input's height and width may stay open.
        precisions: precisions that the format can hold.
        quantises: modules that int8 needs beside `writes`, and the extra that brings them.
        takes_calibration: whether int8 can take the ranges of activations from images.
        refusal: returns why the format cannot hold a model, and the way round, or None.
        channels_first: whether the format's readers give channels first.
        input: name of the input.
        prepares: whether the graph may prepare images.
    """

    model: str
    files: tuple[str, ...]
    writes: dict[str, str]
    reads: dict[str, str]
    write: Callable[[Any, ExportPlan, Path], None]
    open: Callable[[Path, ExportPlan], Run]
    program: str
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
