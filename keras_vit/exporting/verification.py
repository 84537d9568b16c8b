"""Runs the program in a folder's README on images of several sizes, and compares the outputs."""

import dataclasses
import os
import tempfile
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError
from keras_vit.exporting import child, pixels
from keras_vit.exporting.graph import ExportGraph
from keras_vit.exporting.plan import ExportPlan, Format
from keras_vit.layers.quantisation import quantised_parts

TOLERANCES = {"float32": 5e-5, "float16": 2e-2, "int8": 0.25}
"""Largest difference of each precision, relative to the largest output."""

ROUNDED = 5e-3
"""The tolerance in float32 if the graph rounds resized pixels or activations to 8 bits.

Two runtimes add values in different orders, so a value between two levels may become either.
"""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The difference between the outputs of an exported model and those of the original.

    Args:
        difference: largest difference, relative to the largest output.
        tolerance: limit of the difference; above it nothing is written.
        runs: shape of each input with its difference.
        images: the compared images, as text.
    """

    difference: float
    tolerance: float
    runs: tuple[tuple[tuple[int, ...], float], ...]
    images: str


_RUN_EACH = """\
import os
import sys
import numpy as np

program, folder, *paths = sys.argv[1:]
os.chdir(folder)
for path in paths:
    names = {"images": np.load(path)}
    exec(program, names)
    np.save(path, names["outputs"])
"""


def run(form: Format, folder: Path, batches: list[np.ndarray]) -> list[np.ndarray]:
    """Runs the program of the folder's README; returns the outputs for each batch.

    Raises:
        ExportError: the program failed.
    """
    folder = folder.absolute()
    with tempfile.TemporaryDirectory(dir=folder.parent) as files:
        paths = [f"{files}{os.sep}{k}.npy" for k in range(len(batches))]
        for path, images in zip(paths, batches, strict=True):
            np.save(path, images)
        program = form.program.format(images="")
        failure = f"The program that runs {form.model} failed"
        child.run_python(["-c", _RUN_EACH, program, str(folder), *paths], folder, failure)
        return [np.load(path) for path in paths]


def verify(
    form: Format, graph: ExportGraph, folder: Path, calibration: list[np.ndarray] | None
) -> Comparison:
    """Compares the exported model in a folder with its graph.

    Args:
        form: the format.
        graph: the model by the plan of the export.
        folder: the folder.
        calibration: batches that fixed the ranges of activations, of which three are compared,
            because random images may have other ranges. None compares random images.

    Raises:
        ExportError: the difference is above the tolerance, or the exported model cannot be run.
    """
    plan = graph.plan
    tolerance = TOLERANCES[plan.precision]
    rounds_pixels = plan.prepares == "resize" and pixels.rounds(plan.protocol)
    if plan.precision == "float32" and (rounds_pixels or quantised_parts(graph.model.layers)):
        tolerance = ROUNDED
    if calibration is None:
        batches, kind = [_images(plan, shape) for shape in _shapes(plan)], "random images"
    else:
        batches, kind = calibration[:3], "calibration images"
    answers = [graph.answers(images) for images in batches]
    if not all(np.isfinite(answer).all() for answer in answers):
        raise ExportError("model: its outputs for the compared images are NaN or infinite.")
    results = run(form, folder, batches)
    runs = []
    for images, expected, result in zip(batches, answers, results, strict=True):
        if result.shape != expected.shape:
            raise ExportError(
                f"The exported {plan.format} model has outputs {result.shape} for images "
                f"{images.shape}, expected {expected.shape}. Nothing was written."
            )
        scale = float(np.abs(expected).max()) or 1.0
        difference = float(np.abs(result.astype("float32") - expected).max()) / scale
        if not difference <= tolerance:
            raise ExportError(
                f"The exported {plan.format} model differs from the original by {difference:.1e} "
                f"of the largest output, above the tolerance {tolerance:g}. Nothing was written."
            )
        runs.append((images.shape, difference))
    largest = max(difference for _, difference in runs)
    return Comparison(largest, tolerance, tuple(runs), kind)


def _shapes(plan: ExportPlan) -> list[tuple[int, ...]]:
    if plan.config.image_size is None:
        rows, columns = plan.config.stride
        # torch gives the program of a DPT head a least size of three patches.
        least = 3 if plan.config.dense is not None and plan.config.dense.is_dpt else 2
        sides = [(3 * rows, 3 * columns), (least * rows, 4 * columns), (5 * rows, 3 * columns)]
    else:
        height, width = plan.config.image_size
        sides = [(height, width)] * 3
        if plan.prepares == "resize":
            sides = [(height, width), (2 * height + 7, width + 9), (height + 3, 2 * width)]
    shapes = (
        (plan.batch or batch, *side, plan.config.channels)
        for batch, side in zip((1, 3, 2), sides, strict=True)
    )
    return list(dict.fromkeys(shapes))


def _images(plan: ExportPlan, shape: tuple[int, ...]) -> np.ndarray:
    """Returns random images of a shape, in the type and range that the graph takes."""
    pixels_of_8_bits = np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)
    if plan.prepares != "nothing":
        return pixels_of_8_bits
    images = pixels_of_8_bits.astype("float32")
    return images if plan.rescale else images / np.float32(127.5) - 1
