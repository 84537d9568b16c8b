"""An artefact in its own runtime beside the model, on several batches and sizes."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from keras_vit.errors import ExportError, first_line
from keras_vit.exporting import pixels
from keras_vit.exporting.formats.base import Format, Run
from keras_vit.exporting.pipeline import ExportGraph
from keras_vit.exporting.plan import ExportPlan

TOLERANCES = {"float32": 5e-5, "float16": 2e-2, "int8": 0.25}
"""Largest difference of each precision, of the largest output."""

ROUNDED = 5e-3
"""The tolerance in float32 where the graph rounds resized pixels to 8 bits.

Two runtimes add up in different orders, and a pixel on the edge of two levels falls to either.
"""

MOST_LEVELS = 1.0
"""Mean difference in prepared pixels, of 255 levels, from `keras_vit.Preprocessor`."""


Runs = tuple[tuple[tuple[int, ...], float], ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How near an artefact is to the model.

    Args:
        difference: the largest one, of the largest output.
        tolerance: above which nothing is written.
        runs: shape of each input with its difference.
        same_class: share of images with the same most probable class.
        int8_difference: the largest one of the int8 model that the folder holds beside the float32
            one; None where it holds no second model.
        largest_level: largest difference of a prepared pixel from `keras_vit.Preprocessor`, of
            255 levels; None where the graph resizes nothing.
        mean_level: the mean difference.
    """

    difference: float
    tolerance: float
    runs: Runs
    same_class: float
    int8_difference: float | None = None
    largest_level: float | None = None
    mean_level: float | None = None


def verify(
    form: Format, plan: ExportPlan, pipeline: ExportGraph, preprocessor: Any, folder: Path
) -> Comparison:
    """Returns how near the artefact in a folder is to the pipeline.

    Raises:
        ExportError: it answers otherwise, or cannot be run.
    """
    resizes = plan.prepares == "resize"
    tolerance = TOLERANCES[plan.precision]
    if resizes and plan.precision == "float32" and pixels.rounds(plan.protocol):
        tolerance = ROUNDED
    runs, agreed = _runs(form.open, plan, pipeline, folder, tolerance)
    int8 = None
    if form.open_int8 is not None:
        int8, _ = _runs(form.open_int8, plan, pipeline, folder, TOLERANCES["int8"])
    levels = _levels(plan, preprocessor) if resizes else (None, None)
    return Comparison(
        _largest(runs), tolerance, runs, agreed, None if int8 is None else _largest(int8), *levels
    )


def _largest(runs: Runs) -> float:
    return max(difference for _, difference in runs)


def _runs(
    opened: Callable[[Path, ExportPlan], Run],
    plan: ExportPlan,
    pipeline: ExportGraph,
    folder: Path,
    tolerance: float,
) -> tuple[Runs, float]:
    """Returns the difference for each shape of images, and the share with the same class.

    Raises:
        ExportError: a difference is above the tolerance, or the artefact cannot be run.
    """
    runs, same = [], []
    for shape, expected, result in _answers(opened, plan, pipeline, folder):
        if result.shape != expected.shape:
            raise ExportError(
                f"The {plan.format} model answers {result.shape} to images {shape}; the model "
                f"itself {expected.shape}. Nothing was written."
            )
        scale = float(np.abs(expected).max()) or 1.0
        difference = float(np.abs(result.astype("float32") - expected).max()) / scale
        if not difference <= tolerance:
            raise ExportError(
                f"The {plan.format} model differs from the model by {difference:.1e} of its "
                f"largest output, which is above {tolerance:.0e}. Nothing was written."
            )
        runs.append((shape, difference))
        same.append(result.argmax(axis=-1) == expected.argmax(axis=-1))
    return tuple(runs), float(np.mean(np.concatenate([part.ravel() for part in same])))


def _answers(
    opened: Callable[[Path, ExportPlan], Run], plan: ExportPlan, pipeline: ExportGraph, folder: Path
) -> Iterator[tuple[tuple[int, ...], np.ndarray, np.ndarray]]:
    """Yields shapes of images, the model's answers to such images, and the artefact's."""
    cases = [(shape, _images(plan, shape)) for shape in _shapes(plan)]
    expected = [pipeline.answers(images) for _, images in cases]
    try:
        run = opened(folder, plan)
        result = [run(images) for _, images in cases]
    except Exception as error:  # of the runtime, whose classes have no common base
        raise ExportError(
            f"The {plan.format} model was written, but its runtime cannot run it: "
            f"{first_line(error)} Nothing is left of it."
        ) from error
    for (shape, _), own, other in zip(cases, expected, result, strict=True):
        yield shape, own, other


def _shapes(plan: ExportPlan) -> list[tuple[int, ...]]:
    if plan.image_size is None:
        rows, columns = plan.unit
        sides = [(3 * rows, 3 * columns), (2 * rows, 4 * columns), (5 * rows, 3 * columns)]
    else:
        height, width = plan.image_size
        sides = [(height, width)] * 3
        if plan.prepares == "resize":
            sides = [(height, width), (2 * height + 7, width + 9), (height + 3, 2 * width)]
    shapes = (
        plan.shape(plan.batch or batch, *side) for batch, side in zip((1, 3, 2), sides, strict=True)
    )
    return list(dict.fromkeys(shapes))


def _images(plan: ExportPlan, shape: tuple[int, ...]) -> np.ndarray:
    """Random images of a shape, as the graph takes them."""
    pixels_of_8_bits = np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)
    if plan.prepares != "nothing":
        return pixels_of_8_bits
    images = pixels_of_8_bits.astype("float32")
    return images / np.float32(127.5) - 1 if plan.scaled else images


def _levels(plan: ExportPlan, preprocessor: Any) -> tuple[float, float]:
    """Largest and mean difference of resized pixels from the preprocessor's, in levels of 255.

    Raises:
        ExportError: they are too far from each other.
    """
    from keras import ops

    largest, sums, size = 0.0, [], plan.image_size
    assert size is not None  # noqa: S101  such a plan resizes to it
    for sides in ((3 * size[0] + 7, 2 * size[1] + 5), (size[0], 2 * size[1])):
        photo = _photo(sides, plan.channels)
        image = Image.fromarray(photo[..., 0] if plan.channels == 1 else photo)
        host = dataclasses.replace(preprocessor, image_size=size)
        expected = np.asarray(host.resize(image if plan.channels in (1, 3) else photo), "float32")
        batch = np.moveaxis(photo, -1, 0)[None].astype("float32")
        result = pixels.resized(ops.convert_to_tensor(batch), size, plan.protocol)
        result = np.moveaxis(ops.convert_to_numpy(result)[0], 0, -1)
        difference = np.abs(result - expected)
        largest = max(largest, float(difference.max()))
        sums.append(float(difference.mean()))
    mean = max(sums)
    if mean > MOST_LEVELS:
        raise ExportError(
            f"Prepared pixels differ from keras_vit.Preprocessor by {mean:.2f} levels of 255 in "
            "the mean. Export with preprocessing=False. Nothing was written."
        )
    return largest, mean


def _photo(sides: tuple[int, int], channels: int) -> np.ndarray:
    """A picture with areas, edges and noise, uint8 `(height, width, channels)`."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (6, 5, channels), dtype=np.uint8)
    parts = [
        np.asarray(Image.fromarray(coarse[..., c]).resize(sides[::-1], Image.Resampling.BICUBIC))
        for c in range(channels)
    ]
    noise = rng.normal(0, 6, (*sides, channels))
    return np.clip(np.stack(parts, axis=-1) + noise, 0, 255).astype(np.uint8)
