"""Passports: the evidence about a checkpoint, a few kilobytes of JSON that travel with it.

A passport holds the sha256 of the weights, the logits that the origin's code computes for two
images that a formula makes, tolerances per backend, and the preparation of images.
Without a network, it tells whether a folder of any library holds the same network.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.errors import SourceError
from keras_vit.files import write_json
from keras_vit.images.protocols import ProtocolSpec, compact

FILE = "passport.json"
"""Name of a passport beside the weights that it is about."""
FORMAT = 1
TOLERANCES = {"jax": 3e-5, "openvino": 1e-4, "tensorflow": 3e-5, "torch": 3e-5}
"""Largest difference by backend, of the largest magnitude of an output."""
SAMPLES = 64
AS_PUBLISHED = "as published"

RUNGS = (
    "a row only",
    "JSON and shapes of the published file read",
    "sha256 pinned",
    "logits equal the origin's code",
    "1,000 images",
    "50,000 images",
)
"""The ladder of evidence, from no evidence up."""


@dataclasses.dataclass(frozen=True)
class Passport:
    """The evidence about one checkpoint; an empty field stands for evidence not gathered yet.

    Args:
        name: name of the checkpoint: a preset, or the source of `attest`.
        date: day of the evidence, such as `"2026-11-24"`.
        read: origin of the JSON that `inspect` has read beside arrays of the published shapes:
            `AS_PUBLISHED`, or words for JSON that was written from descriptions of the file.
        dialect: dialect of the files.
        sha256: digest of each file of weights, by file name.
        origin: code that computed the outputs, with its version.
        image_shape: height, width and channels of the two images of `formula_images`.
        logits: `SAMPLES` evenly spaced numbers of the output, for each image.
        num_logits: length of the output.
        norms: Euclidean norm of the output for each image under `"logits"`, and where keras_vit
            is the origin, of all tokens behind a block, by block.
        tolerances: accepted difference by backend, as a share of the largest magnitude.
        protocol: preparation of images, with every parameter.
        protocol_sha256: digest of the protocol.
        images: number of labelled images of `top1`.
        top1: measured accuracy in percent.
    """

    name: str
    date: str
    read: str = ""
    dialect: str = ""
    sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)
    origin: str = ""
    image_shape: tuple[int, ...] = ()
    logits: tuple[tuple[float, ...], ...] = ()
    num_logits: int = 0
    norms: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    tolerances: Mapping[str, float] = dataclasses.field(default_factory=dict)
    protocol: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    protocol_sha256: str = ""
    images: int = 0
    top1: float | None = None

    @property
    def rung(self) -> int:
        """The highest rung of `RUNGS` that the evidence reaches."""
        own = self.dialect == "keras_vit"  # keras_vit is the origin of its own presets alone
        by_origin = bool(self.origin) and (own or not self.origin.startswith("keras_vit"))
        steps = (
            self.read == AS_PUBLISHED,
            bool(self.sha256),
            by_origin,
            self.images >= 1_000,
            self.images >= 50_000,
        )
        return max((k + 1 for k, reached in enumerate(steps) if reached), default=0)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any], address: str = "passport") -> "Passport":
        """Returns the passport of a JSON object.

        Raises:
            SourceError: the object is no passport of a known format, or is damaged.
        """
        facts = dict(facts)
        version = facts.pop("format", None)
        fields = {field.name for field in dataclasses.fields(cls)}
        if version != FORMAT or not {"name", "date"} <= facts.keys() <= fields:
            raise SourceError(
                f"{address}: expected a passport of format {FORMAT} with "
                f"{', '.join(sorted(fields))}; found format {version!r} with "
                f"{', '.join(sorted(facts))}. `keras-vit attest` writes passports."
            )
        passport = cls(**facts)
        if passport.protocol_sha256 != digest_of_protocol(passport.protocol):
            raise SourceError(
                f"{address}: protocol_sha256 is {passport.protocol_sha256!r}, and its protocol has "
                f"{digest_of_protocol(passport.protocol)!r}. The passport was changed by hand; "
                "write it anew by `keras-vit attest`."
            )
        return passport

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types, without the empty fields."""
        facts = {name: value for name, value in dataclasses.asdict(self).items() if value}
        return {"format": FORMAT, **facts}

    @classmethod
    def read_from(cls, path: str | os.PathLike[str]) -> "Passport":
        """Reads a file.

        Raises:
            SourceError: the file cannot be read, or is no passport.
        """
        try:
            facts = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SourceError(f"{path}: expected a passport in JSON ({error}).") from error
        if not isinstance(facts, dict):
            raise SourceError(f"{path}: expected a JSON object, found {type(facts).__name__}.")
        return cls.from_dict(facts, str(path))

    def write_to(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON, whole or not at all."""
        write_json(Path(path), self.to_dict())


@functools.cache
def shipped() -> dict[str, Passport]:
    """Returns the passports that came with keras_vit, by the name of the preset."""
    path = Path(__file__).parents[1] / "sources" / "passports.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {facts["name"]: Passport.from_dict(facts, str(path)) for facts in rows}


def rung_of(name: str) -> int:
    """Returns the rung of a preset by its shipped passport, 0 if it has none."""
    passport = shipped().get(name)
    return passport.rung if passport else 0


def digest_of_protocol(protocol: ProtocolSpec) -> str:
    """Returns the sha256 of a protocol without its defaults; empty for an empty protocol."""
    if not protocol:
        return ""
    return hashlib.sha256(json.dumps(compact(protocol), sort_keys=True).encode()).hexdigest()


def digests(path: Path) -> dict[str, str]:
    """Returns the sha256 of a file of weights, or of each of a folder, by file name."""
    kinds = (".safetensors", ".h5", ".npz")
    inside = [path] if path.is_file() else [p for p in path.iterdir() if p.suffix in kinds]
    digests = {}
    for file in sorted(inside):
        with file.open("rb") as stream:
            digests[file.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digests


def formula_images(height: int, width: int, channels: int) -> np.ndarray:
    """Returns the two images of every passport: float32 `(2, height, width, channels)` in [-1, 1).

    Knuth's multiplicative hash of the index of a number, so that no library's random generator is
    part of the images. The second image has a gradient from top to bottom added, as photographs
    have means that differ.
    """
    index = np.arange(2 * height * width * channels, dtype=np.uint64)
    hashed = (index * np.uint64(2654435761)) % np.uint64(2**32) >> np.uint64(8)
    values = hashed.astype("float32") / np.float32(2**23) - np.float32(1)
    images = values.reshape(2, height, width, channels)
    slope = np.linspace(-0.5, 0.5, height, dtype="float32")[:, None, None]
    images[1] = images[1] / 2 + slope
    return images


def sample(logits: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Returns `SAMPLES` evenly spaced numbers of each row."""
    chosen = np.linspace(0, logits.shape[1] - 1, min(SAMPLES, logits.shape[1])).astype(int)
    return tuple(tuple(float(f"{v:.8g}") for v in row) for row in logits[:, chosen])


def norms(values: np.ndarray) -> tuple[float, ...]:
    """Returns one Euclidean norm per image, over all values of that image."""
    flat = np.asarray(values, "float64").reshape(len(values), -1)
    return tuple(float(f"{norm:.8g}") for norm in np.linalg.norm(flat, axis=1))
