"""An artefact in its own runtime beside the model, on several batches and sizes."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from keras_vit.errors import ExportError
from keras_vit.exporting import pixels
from keras_vit.exporting.formats.base import Format
from keras_vit.exporting.pipeline import Pipeline
from keras_vit.exporting.plan import Plan

TOLERANCES = {"float32": 5e-5, "float16": 2e-2, "int8": 0.25}
"""Largest difference of each precision, of the largest output."""

ROUNDED = 5e-3
"""The tolerance in float32 where the graph rounds resized pixels to 8 bits.

Two runtimes add up in different orders, and a pixel on the edge of two levels falls to either.
"""

MOST_LEVELS = 1.0
"""Mean difference in prepared pixels, of 255 levels, from `keras_vit.Preprocessor`."""


@dataclasses.dataclass(frozen=True)
class Verification:
    """How near an artefact is to the model.

    Args:
        difference: the largest one, of the largest output.
        tolerance: above which nothing is written.
        runs: shape of each input with its difference.
        same_class: share of images with the same most probable class.
        largest_level: largest difference of a prepared pixel from `keras_vit.Preprocessor`, of
            255 levels; None where the graph resizes nothing.
        mean_level: the mean difference.
    """

    difference: float
    tolerance: float
    runs: tuple[tuple[tuple[int, ...], float], ...]
    same_class: float
    largest_level: float | None = None
    mean_level: float | None = None


def verify(
    form: Format, plan: Plan, pipeline: Pipeline, preprocessor: Any, folder: Path
) -> Verification:
    """Returns how near the artefact in a folder is to the pipeline.

    Raises:
        ExportError: it answers otherwise, or cannot be run.
    """
    run = form.open(folder, plan)
    runs, same = [], []
    for shape in _shapes(plan):
        images = _images(plan, shape)
        expected, found = pipeline.answers(images), run(images)
        if found.shape != expected.shape:
            raise ExportError(
                f"The {plan.format} model answers {found.shape} to images {shape}; the model "
                f"itself {expected.shape}. Nothing was written."
            )
        scale = float(np.abs(expected).max()) or 1.0
        difference = float(np.abs(found.astype("float32") - expected).max()) / scale
        runs.append((shape, difference))
        same.append(found.argmax(axis=-1) == expected.argmax(axis=-1))
    largest = max(difference for _, difference in runs)
    tolerance = TOLERANCES[plan.precision]
    resizes = plan.prepares == "resize"
    if resizes and plan.precision == "float32" and pixels.rounds(plan.protocol):
        tolerance = ROUNDED
    if not largest <= tolerance:
        raise ExportError(
            f"The {plan.format} model differs from the model by {largest:.1e} of its largest "
            f"output, which is above {tolerance:.0e}. Nothing was written."
        )
    agreed = float(np.mean(np.concatenate([part.ravel() for part in same])))
    levels = _levels(plan, preprocessor) if resizes else (None, None)
    return Verification(largest, tolerance, tuple(runs), agreed, *levels)


def _shapes(plan: Plan) -> list[tuple[int, ...]]:
    if plan.image_size is None:
        rows, columns = plan.unit
        sides = [(3 * rows, 3 * columns), (2 * rows, 4 * columns), (5 * rows, 3 * columns)]
    else:
        height, width = plan.image_size
        sides = [(height, width)] * 3
        if plan.prepares == "resize":
            sides = [(height, width), (2 * height + 7, width + 9), (height + 3, 2 * width)]
    shapes: list[tuple[int, ...]] = []
    for batch, side in zip((1, 3, 2), sides, strict=True):
        first = plan.batch or batch
        last = (plan.channels, *side) if plan.channels_first else (*side, plan.channels)
        shapes.append((first, *last))
    return list(dict.fromkeys(shapes))


def _images(plan: Plan, shape: tuple[int, ...]) -> np.ndarray:
    """Random images of a shape, as the graph takes them."""
    pixels_of_8_bits = np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)
    if plan.prepares != "nothing":
        return pixels_of_8_bits
    images = pixels_of_8_bits.astype("float32")
    return images / np.float32(127.5) - 1 if plan.scaled else images


def _levels(plan: Plan, preprocessor: Any) -> tuple[float, float]:
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
        found = pixels.resized(ops.convert_to_tensor(batch), size, plan.protocol)
        found = np.moveaxis(ops.convert_to_numpy(found)[0], 0, -1)
        difference = np.abs(found - expected)
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
