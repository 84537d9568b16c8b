"""Compares the outputs of a checkpoint with its original library, or with another checkpoint."""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.checkpoints.facts import unpack_reading
from keras_vit.checkpoints.families.family import Format
from keras_vit.checkpoints.libraries import LibraryUnavailableError, run_library
from keras_vit.checkpoints.opening import open_source
from keras_vit.checkpoints.reading import open_checkpoint
from keras_vit.errors import CheckpointError
from keras_vit.models.building import Reading
from keras_vit.presets.source import Source

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer

TOLERANCES = {"jax": 3e-5, "openvino": 1e-4, "tensorflow": 3e-5, "torch": 3e-5}
"""Tolerance by backend, relative to the largest expected magnitude."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison of a checkpoint's outputs.

    Args:
        name: compared outputs: `"logits"`, or a block, such as `"block_3"`.
        expected: library or checkpoint that computed the expected outputs.
        difference: largest difference relative to the largest expected magnitude; 1 if the
            outputs have different shapes.
        tolerance: largest difference that passes.
    """

    name: str
    expected: str
    difference: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance; False for NaN."""
        return self.difference <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of `verify`.

    Args:
        checks: the comparisons.
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every comparison passed."""
        return all(check.passed for check in self.checks)


def verify(
    source: str | os.PathLike[str] | Source,
    against: str | os.PathLike[str] | Source | None = None,
    *,
    read: Reading | None = None,
    **fields: Any,
) -> Verification:
    """Verifies that a checkpoint gives the outputs of its original library or another checkpoint.

    Args:
        source: a source as for `VisionTransformer.from_preset`, of any library.
        against: another checkpoint, whose blocks and logits keras_vit computes for comparison. None
            to compare with the logits that timm, transformers or keras-hub computes from the files
            of `source`. Both are computed for two synthetic images.
        read: as for `from_preset`. `variant`, `checksum` and `allow_pickle_weights` apply to both
            checkpoints, the other keys only to `source`.
        **fields: further arguments of `from_preset`, for both checkpoints.

    Raises:
        CheckpointError: as `from_preset`; or the two checkpoints take images of different sizes.
        LibraryUnavailableError: the files belong to a library that cannot run here.
    """
    how = unpack_reading(read, fields)
    source = Source.parse(source, allow_pickle_weights=how["allow_pickle_weights"])
    if against is not None:  # a wrong name fails before anything is loaded
        against = Source.parse(against, allow_pickle_weights=how["allow_pickle_weights"])
    from keras_vit.models.vision_transformer import VisionTransformer  # starts a backend

    model = VisionTransformer.from_preset(source, read=read, **fields)
    images = formula_images(*image_shape(model))
    if against is None:
        origin, logits = run_origin(source, model, {**fields, "read": how})
        return Verification((check("logits", compute(model, images)["logits"], logits, origin),))
    shared: Any = {key: how[key] for key in ("variant", "checksum") if key in how}
    other = VisionTransformer.from_preset(against, read=shared, **fields)
    if image_shape(other) != image_shape(model):
        raise CheckpointError(
            f"{source} takes images of (height, width, channels) {image_shape(model)}, and "
            f"{against} of {image_shape(other)}. Give both one image_size."
        )
    count = min(model.config.num_layers, other.config.num_layers)
    blocks = [f"block_{number}" for number in sorted({0, count // 2, count - 1})]
    expected = compute(other, images, blocks)
    outputs = compute(model, images, blocks)
    return Verification(
        tuple(check(name, outputs[name], expected[name], str(against)) for name in outputs)
    )


def run_origin(
    source: Source, model: "VisionTransformer", fields: dict[str, Any]
) -> tuple[str, np.ndarray]:
    """Runs a checkpoint's original library; returns its name, and its logits for `formula_images`.

    Args:
        source: the checkpoint.
        model: the model that was loaded from it.
        fields: arguments of `VisionTransformer.from_preset`.

    Raises:
        LibraryUnavailableError: the library cannot run here.
    """
    images = formula_images(*image_shape(model))
    try:
        with source.local() as path:
            return run_library(find_format(source, model, fields), path, images)
    except LibraryUnavailableError as error:
        raise LibraryUnavailableError(
            f"{source}: cannot run its library: {error}. Compare it with another checkpoint: "
            "verify(source, other), or keras-vit verify SOURCE OTHER."
        ) from error


def find_format(source: Source, model: "VisionTransformer", fields: dict[str, Any]) -> Format:
    """Returns the format of the files, which a row of the catalog may not state."""
    with open_source(source, headers=True) as files:
        arguments = {**source.defaults, "image_size": model.config.image_size, **fields}
        return open_checkpoint(files, arguments | fields.get("read", {})).format


def image_shape(model: "VisionTransformer") -> tuple[int, int, int]:
    """Returns (height, width, channels) of a model's images; 224 pixels for an any-size model."""
    return (*(model.config.image_size or (224, 224)), model.config.channels)


def compute(
    model: "VisionTransformer", images: np.ndarray, blocks: list[str] | None = None
) -> dict[str, np.ndarray]:
    """Computes the logits, one row per image, and the tokens after some blocks, by name."""
    from keras_vit.models.inference import run

    tokens = run(model, images, blocks) if blocks else {}
    return {**tokens, "logits": run(model, images).reshape(len(images), -1)}


def check(name: str, outputs: Any, expected: Any, origin: str) -> Check:
    """Compares outputs with the expected outputs that `origin` has computed."""
    import keras

    tolerance = TOLERANCES.get(keras.backend.backend(), 1e-4)
    outputs, expected = np.asarray(outputs, "float64"), np.asarray(expected, "float64")
    difference = 1.0
    if outputs.shape == expected.shape:
        largest = max(float(np.abs(expected).max()), 1e-30)
        difference = float(np.abs(outputs - expected).max()) / largest
    return Check(name, origin, difference, tolerance)


def formula_images(height: int, width: int, channels: int) -> np.ndarray:
    """Returns two synthetic images, float32 `(2, height, width, channels)` in [-1, 1).

    The values are Knuth's multiplicative hash of their indices, so that the images do
    not depend on a library's random generator. The second image has an additional gradient from
    top to bottom, because photographs have different means.
    """
    index = np.arange(2 * height * width * channels, dtype=np.uint64)
    hashed = (index * np.uint64(2654435761)) % np.uint64(2**32) >> np.uint64(8)
    values = hashed.astype("float32") / np.float32(2**23) - np.float32(1)
    images = values.reshape(2, height, width, channels)
    slope = np.linspace(-0.5, 0.5, height, dtype="float32")[:, None, None]
    images[1] = images[1] / 2 + slope
    return images
