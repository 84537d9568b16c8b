"""Do two checkpoints compute the same, and does the library they belong to agree?"""

import dataclasses
import os
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
    """How far two arrays are apart.

    Args:
        output: what is compared: `"tokens"`, `"pre_logits"` or `"logits"`.
        against: the other checkpoint, or the library.
        absolute: max |difference|.
        relative: the same, divided by max |value|.
    """

    output: str
    against: str
    absolute: float
    relative: float


@dataclasses.dataclass(frozen=True)
class Verification:
    """What was compared, and what could not be.

    Args:
        differences: one for each comparison.
        not_run: why a library's own forward pass was left out, one reason each.
    """

    differences: tuple[Difference, ...]
    not_run: tuple[str, ...]


def verify(
    source: str | os.PathLike[str] | Source,
    other: str | os.PathLike[str] | Source | None = None,
    *,
    batch_size: int = 2,
    seed: int = 0,
    **fields: Any,
) -> Verification:
    """Runs a checkpoint on random images and compares what comes out.

    With `other`, that checkpoint runs on the same images. Each one's own library
    (timm, transformers, keras-hub) runs too, where it is installed.

    Args:
        source, other: as for `load`.
        batch_size, seed: of the images, uniform in [-1, 1].
        **fields: what `load` takes, for both.

    Raises:
        CheckpointError: as `load`.
    """
    differences: list[Difference] = []
    not_run: list[str] = []
    runs: list[dict[str, np.ndarray]] = []
    for checkpoint in [source] if other is None else [source, other]:
        found = Source.of(checkpoint)
        model = load(found, **fields)
        images = _images(model, batch_size, seed)
        runs.append(_run(model, images))
        dialect = inspect(found, **{"image_size": model.config.image_size, **fields}).dialect
        try:
            with found.local() as path:
                logits = library_logits(dialect, path, images)
            ours = runs[-1].get("logits", runs[-1]["pre_logits"])
            differences.append(_difference("logits", dialect, ours, logits))
        except LibraryUnavailableError as reason:
            not_run.append(str(reason))
    if other is not None:
        mine, theirs = runs
        differences += [
            _difference(name, str(other), mine[name], theirs[name])
            for name in _OUTPUTS
            if name in mine and name in theirs
        ]
    return Verification(tuple(differences), tuple(not_run))


def _images(model: "VisionTransformer", batch_size: int, seed: int) -> np.ndarray:
    height, width = model.config.image_size or (224, 224)
    shape = (batch_size, height, width, model.config.channels)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def _run(model: "VisionTransformer", images: np.ndarray) -> dict[str, np.ndarray]:
    import keras

    names = [layer.name for layer in model.layers]
    stages = {
        output: model.get_layer(layer).output
        for output, layer in _OUTPUTS.items()
        if layer in names
    }
    return keras.Model(model.input, stages).predict(images, verbose=0)


def _difference(output: str, against: str, ours: np.ndarray, theirs: np.ndarray) -> Difference:
    absolute = float(np.abs(ours.astype(np.float64) - theirs).max())
    return Difference(output, against, absolute, absolute / max(float(np.abs(theirs).max()), 1e-30))
