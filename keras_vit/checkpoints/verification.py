"""Compares a checkpoint's outputs with another checkpoint's and with its own library's."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.checkpoints.inspection import inspect
from keras_vit.checkpoints.libraries import LibraryUnavailableError, library_logits
from keras_vit.checkpoints.source import Source
from keras_vit.checkpoints.transfer import load

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer

_OUTPUTS = {"tokens": "encoder_norm", "pre_logits": "pre_logits", "logits": "head"}


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of two arrays.

    Args:
        output: name of both arrays: `"tokens"`, `"pre_logits"` or `"logits"`.
        against: the other checkpoint, or the library, that computed the second array.
        absolute: largest magnitude of the difference.
        relative: the same as a share of the largest magnitude of the second array.
    """

    output: str
    against: str
    absolute: float
    relative: float


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of `verify`.

    Args:
        differences: one for each comparison.
        not_run: a sentence for each library whose own forward pass could not run.
        warnings: what `look` said of each checkpoint, behind the checkpoint's name.
    """

    differences: tuple[Difference, ...]
    not_run: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def verify(
    source: str | os.PathLike[str] | Source,
    other: str | os.PathLike[str] | Source | None = None,
    *,
    batch_size: int = 2,
    seed: int = 0,
    look: Callable[["VisionTransformer"], Sequence[str]] = lambda model: (),
    **fields: Any,
) -> Verification:
    """Runs a checkpoint on random images and compares its outputs.

    With `other`, that checkpoint runs on the same images. The library of each checkpoint
    (timm, transformers, keras-hub) runs too, where it is installed.

    Args:
        source, other: sources as for `load`.
        batch_size, seed: number and seed of the images, which are uniform in [-1, 1].
        look: returns a sentence for each part of a loaded model that looks wrong, such as
            `keras_vit.explanation.looks_untrained`.
        **fields: arguments of `load` for both checkpoints.

    Raises:
        CheckpointError: as `load`.
    """
    differences: list[Difference] = []
    not_run: list[str] = []
    warnings: list[str] = []
    runs: list[dict[str, np.ndarray]] = []
    for checkpoint in [source] if other is None else [source, other]:
        found = Source.of(checkpoint)
        model = load(found, **fields)
        warnings += [f"{checkpoint}: {sentence}" for sentence in look(model)]
        images = _images(model, batch_size, seed)
        runs.append(_run(model, images))
        dialect = inspect(found, **{"image_size": model.config.image_size, **fields}).dialect
        try:
            with found.local() as path:
                logits = library_logits(dialect, path, images)
            computed = runs[-1].get("logits", runs[-1]["pre_logits"])
            differences.append(_difference("logits", dialect, computed, logits))
        except LibraryUnavailableError as reason:
            not_run.append(str(reason))
    if other is not None:
        first, second = runs
        differences += [
            _difference(name, str(other), first[name], second[name])
            for name in _OUTPUTS
            if name in first and name in second
        ]
    return Verification(tuple(differences), tuple(not_run), tuple(warnings))


def _images(model: "VisionTransformer", batch_size: int, seed: int) -> np.ndarray:
    height, width = model.config.image_size or (224, 224)
    shape = (batch_size, height, width, model.config.channels)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def _run(model: "VisionTransformer", images: np.ndarray) -> dict[str, np.ndarray]:
    from keras_vit.inference import run

    names = [layer.name for layer in model.layers]
    stages = {output: layer for output, layer in _OUTPUTS.items() if layer in names}
    values = run(model, images, list(stages.values()))
    return {output: values[layer] for output, layer in stages.items()}


def _difference(output: str, against: str, found: np.ndarray, expected: np.ndarray) -> Difference:
    absolute = float(np.abs(found.astype(np.float64) - expected).max())
    largest = max(float(np.abs(expected).max()), 1e-30)
    return Difference(output, against, absolute, absolute / largest)
