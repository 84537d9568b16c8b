"""Images per second of an artefact in its own runtime, beside the model itself."""

import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.exporting.formats.base import Format
from keras_vit.exporting.plan import Plan

_ROUNDS = 7
_SECONDS = 1.0  # of all turns of the artefact together, and of the model's, at least
_STEPS = 14  # of an image's side, in units, for a model of any size: 224 pixels at a patch of 16


@dataclasses.dataclass(frozen=True)
class Speed:
    """How fast an artefact and its model answer, at one size of a batch.

    Args:
        batch: images of a call.
        latency_ms: milliseconds of a call of the artefact, the median of the turns' medians.
        images_per_second: `batch` by this latency.
        model_latency_ms: likewise for `model.predict_on_batch` on prepared images, in float32.
        model_images_per_second: likewise.
    """

    batch: int
    latency_ms: float
    images_per_second: float
    model_latency_ms: float
    model_images_per_second: float


def measured(form: Format, plan: Plan, model: Any, folder: Path) -> tuple[Speed, ...]:
    """Returns the speed for batches of 1 and 8, or for the plan's own.

    Artefact and model take turns, so that a slower minute of the machine slows both. A graph that
    prepares images does that within its time; the model gets prepared ones.

    Args:
        form: the format.
        plan: of the export.
        model: a `VisionTransformer` of the plan's size.
        folder: of the artefact.
    """
    run = form.open(folder, plan)
    sides = plan.image_size or tuple(_STEPS * side for side in plan.unit)
    found = []
    for batch in (1, 8) if plan.batch is None else (plan.batch,):
        given = np.full(plan.shape(batch, *sides), 128, plan.input_dtype)
        first = model.data_format == "channels_first"
        own = (plan.channels, *sides) if first else (*sides, plan.channels)
        prepared = np.zeros((batch, *own), "float32")
        artefact, itself = _in_turns(
            functools.partial(run, given), functools.partial(model.predict_on_batch, prepared)
        )
        found.append(
            Speed(
                batch=batch,
                latency_ms=round(1000 * artefact, 3),
                images_per_second=round(batch / artefact, 2),
                model_latency_ms=round(1000 * itself, 3),
                model_images_per_second=round(batch / itself, 2),
            )
        )
    return tuple(found)


def _in_turns(*tasks: Callable[[], Any]) -> list[float]:
    """Returns the seconds of a call of each task: the median over its turns."""
    for task in tasks:
        task()  # compiles, allocates
    seconds: list[list[float]] = [[] for _ in tasks]
    for _ in range(_ROUNDS):
        for task, found in zip(tasks, seconds, strict=True):
            found.append(_median_of_a_turn(task))
    return [float(np.median(found)) for found in seconds]


def _median_of_a_turn(task: Callable[[], Any]) -> float:
    calls: list[float] = []
    end = time.perf_counter() + _SECONDS / _ROUNDS
    while not calls or time.perf_counter() < end:
        start = time.perf_counter()
        task()
        calls.append(time.perf_counter() - start)
    return float(np.median(calls))
