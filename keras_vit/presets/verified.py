"""How far each preset of the catalog was verified: the records that `weights/verify.py` writes."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("verified.json")
NOT_YET = "not yet"


@dataclasses.dataclass(frozen=True)
class Verified:
    """What one preset was compared with; an empty field stands for a comparison not made yet.

    Args:
        digest: sha256 of the file that was read, or commit of its repository on the Hub, after
            its length and the checksum that the server announces had been found right.
        outputs: source of the outputs for one fixed image that keras_vit's outputs equal:
            `"reference"` for the authors' code, otherwise the version that recorded them.
        images: number of labelled images of `top1`: 1,000 or 50,000 of ImageNet's validation
            images, or the 360 test images of `vit_digits`.
        top1: measured accuracy in percent.
        expected: reported accuracy in percent, to compare with.
        date: day of the verification, such as `"2026-11-22"`.
    """

    digest: str = ""
    outputs: str = ""
    images: int = 0
    top1: float | None = None
    expected: float | None = None
    date: str = ""

    def __str__(self) -> str:
        parts = ["checksum"] if self.digest else []
        parts += ["outputs"] if self.outputs == "reference" else []
        if self.top1 is not None:
            against = f" ({self.expected:.2f} reported)" if self.expected is not None else ""
            parts.append(f"{self.top1:.2f} % of {self.images:,}{against}")
        return ", ".join(parts) or NOT_YET


@functools.cache
def records() -> dict[str, Verified]:
    """Returns the record of each preset that was verified, by name."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: Verified(**facts) for name, facts in found.items()}


def verdict(name: str) -> str:
    """Returns in words how far a preset was verified; `"not yet"` where nothing was compared."""
    return str(records().get(name, Verified()))
