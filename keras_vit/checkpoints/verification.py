"""Makes passports of checkpoints, and checks checkpoints against them."""

import dataclasses
import datetime
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import keras_vit
from keras_vit.checkpoints import passports
from keras_vit.checkpoints.inspection import open_checkpoint
from keras_vit.checkpoints.libraries import LibraryUnavailableError, run_library
from keras_vit.checkpoints.loading import load
from keras_vit.checkpoints.opening import open_source
from keras_vit.checkpoints.passports import Passport, formula_images
from keras_vit.images.protocols import complete
from keras_vit.sources.source import Source

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer

ORIGINS = ("library", "keras_vit")


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison of a checkpoint with a passport.

    Args:
        name: compared part: `"sha256"`, `"protocol"`, `"logits"`, or a block's norm.
        expected: the passport's side, with the code that computed it.
        difference: largest difference, of the largest magnitude; 0 for equal and 1 for different
            where no number was compared.
        tolerance: largest difference that passes.
    """

    name: str
    expected: str
    difference: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance; NaN is not."""
        return self.difference <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of `verify`.

    Args:
        checks: one for each comparison.
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every comparison passed."""
        return all(check.passed for check in self.checks)


def attest(
    source: str | os.PathLike[str] | Source, *, by: str = "library", **fields: Any
) -> Passport:
    """Returns the passport of a checkpoint, whose outputs its library's own code computes.

    Args:
        source: a source as for `load`.
        by: `"library"` for timm, transformers or keras-hub, the code that the files' dialect
            belongs to; `"keras_vit"` for keras_vit's own forward pass, which proves equality with
            another run of keras_vit, and nothing about the origin.
        **fields: arguments of `load`.

    Raises:
        CheckpointError: as `load`.
        LibraryUnavailableError: the library cannot run the checkpoint.
        ValueError: `by` is neither of the two.
    """
    if by not in ORIGINS:
        raise ValueError(f"by={by!r}: expected one of {', '.join(ORIGINS)}.")
    source = Source.of(source)
    model = load(source, **fields)
    shape = _image_shape(model)
    images = formula_images(*shape)
    dialect = _dialect_of(source, model, fields)
    with source.local() as path:
        sha256 = passports.digests(path)
        if by == "keras_vit" or dialect == "keras_vit":
            outputs = _run(model, images, _three_blocks(model))
            origin = f"keras_vit {keras_vit.__version__}"
        else:
            try:
                origin, logits = run_library(dialect, path, images)
                outputs = {"logits": logits}
            except LibraryUnavailableError as error:
                raise LibraryUnavailableError(
                    f"{source.name}: the origin's code cannot run: {error}. Compare with a "
                    "passport or with another checkpoint, or attest by keras_vit itself: "
                    "by='keras_vit', --by keras_vit."
                ) from error
    protocol = complete(model.preprocessor.protocol)
    return Passport(
        name=source.row.name if source.row else source.name.replace("\\", "/").rpartition("/")[2],
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        dialect=dialect,
        sha256=sha256,
        origin=origin,
        image_shape=shape,
        logits=passports.sample(outputs["logits"]),
        num_logits=outputs["logits"].shape[1],
        norms={name: passports.norms(value) for name, value in outputs.items()},
        tolerances=passports.TOLERANCES,
        protocol=protocol,
        protocol_sha256=passports.digest_of_protocol(protocol),
    )


def verify(
    source: str | os.PathLike[str] | Source,
    against: Passport | str | os.PathLike[str] | Source | None = None,
    **fields: Any,
) -> Verification:
    """Compares a checkpoint with a passport, without a network.

    Args:
        source: a source as for `load`, of any library.
        against: a passport, or the path of its JSON file; or another checkpoint, whose passport is
            made by keras_vit on the spot. None takes `passport.json` beside the weights, then
            the shipped passport of a preset's name, then a passport made by the library that
            the files belong to.
        **fields: arguments of `load`.

    Raises:
        CheckpointError: as `load`.
        SourceError: the passport is damaged.
        LibraryUnavailableError: there is no passport, and the library cannot run here.
    """
    source = Source.of(source)
    passport = _passport(source, against, fields)
    model = load(source, **fields)
    checks: list[Check] = []
    # In another dialect, the files are others.
    if passport.sha256 and passport.dialect == _dialect_of(source, model, fields):
        with source.local() as path:
            same = passports.digests(path) == dict(passport.sha256)
        checks.append(Check("sha256", " ".join(passport.sha256), float(not same), 0.0))
    if passport.protocol:
        digest = passports.digest_of_protocol(model.preprocessor.protocol)
        same = digest == passport.protocol_sha256
        checks.append(Check("protocol", str(passport.protocol["name"]), float(not same), 0.0))
    if passport.norms:
        checks += _compare(model, passport)
    return Verification(tuple(checks))


def _passport(
    source: Source,
    against: Passport | str | os.PathLike[str] | Source | None,
    fields: Mapping[str, Any],
) -> Passport:
    if isinstance(against, Passport):
        return against
    if against is not None:
        if not isinstance(against, Source) and str(against).endswith(".json"):
            return Passport.read_from(against)
        other = attest(against, by="keras_vit", **fields)
        return dataclasses.replace(other, sha256={}, protocol={}, protocol_sha256="")
    with source.local() as path:
        if path.is_dir() and (path / passports.FILE).is_file():
            return Passport.read_from(path / passports.FILE)
    passport = passports.shipped().get(source.row.name if source.row else source.name)
    if passport is not None and passport.norms:
        return passport
    return attest(source, **fields)


def _compare(model: "VisionTransformer", passport: Passport) -> list[Check]:
    """Runs a model on the passport's images; another shape of the output is a difference of 1."""
    import keras

    shape, expected = _image_shape(model), passport.origin
    if shape != tuple(passport.image_shape):
        return [Check("image size", f"{expected}: {passport.image_shape}", 1.0, 0.0)]
    blocks = [int(name.rpartition("_")[2]) for name in passport.norms if name != "logits"]
    if any(k >= model.config.num_layers for k in blocks):
        return [Check("blocks", f"{expected}: {blocks}", 1.0, 0.0)]
    outputs = _run(model, formula_images(*shape), blocks)
    tolerance = passport.tolerances.get(keras.backend.backend(), 1e-4)
    checks = [
        Check(f"norm of {name}", expected, _difference(passports.norms(value), norms), tolerance)
        for name, value in outputs.items()
        if (norms := passport.norms.get(name)) is not None
    ]
    difference = 1.0
    if outputs["logits"].shape[1] == passport.num_logits:
        difference = _difference(passports.sample(outputs["logits"]), passport.logits)
    return [*checks, Check("logits", expected, difference, tolerance)]


def _difference(values: Any, expected: Any) -> float:
    values, expected = np.asarray(values, "float64"), np.asarray(expected, "float64")
    largest = max(float(np.abs(expected).max()), 1e-30)
    return float(np.abs(values - expected).max()) / largest


def _dialect_of(source: Source, model: "VisionTransformer", fields: Mapping[str, Any]) -> str:
    """Returns the dialect of the files themselves, which a row of the catalog may not know."""
    with open_source(source, headers=True) as files:
        arguments = {**source.defaults, "image_size": model.config.image_size, **fields}
        return open_checkpoint(files, arguments).info.dialect


def _image_shape(model: "VisionTransformer") -> tuple[int, int, int]:
    return (*(model.config.image_size or (224, 224)), model.config.channels)


def _three_blocks(model: "VisionTransformer") -> list[int]:
    """Returns the numbers of the first, the middle and the last block."""
    count = model.config.num_layers
    return sorted({0, count // 2, count - 1})


def _run(
    model: "VisionTransformer", images: np.ndarray, blocks: Sequence[int]
) -> dict[str, np.ndarray]:
    from keras_vit.inference import run

    logits = run(model, images).reshape(len(images), -1)
    inner = run(model, images, [f"block_{k}" for k in blocks]) if blocks else {}
    return {"logits": logits, **inner}
