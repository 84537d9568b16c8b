"""The shipped evidence about presets: `passports.json`, which `weights/verify.py` makes."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

AS_PUBLISHED = "as published"
"""Value of `read` if the JSON is the published one."""

RUNGS = (
    "a row only",
    "JSON and shapes of the published file read",
    "sha256 pinned",
    "logits equal the origin's code",
    "1,000 images",
    "50,000 images",
)
"""The ladder of evidence, from no evidence up."""


@functools.cache
def shipped() -> dict[str, dict[str, Any]]:
    """Returns the passports that came with keras_vit, by the name of the preset."""
    rows = json.loads(Path(__file__).with_name("passports.json").read_text(encoding="utf-8"))
    return {facts["name"]: facts for facts in rows}


def rung(passport: Mapping[str, Any]) -> int:
    """Returns the highest rung of `RUNGS` that a passport reaches; an empty one reaches 0."""
    origin, images = passport.get("origin", ""), passport.get("images", 0)
    # keras_vit is the origin of its own presets alone.
    by_origin = origin and (passport["dialect"] == "keras_vit" or "keras_vit" not in origin)
    steps = (
        passport.get("read") == AS_PUBLISHED,
        passport.get("sha256"),
        by_origin,
        images >= 1_000,
        images >= 50_000,
    )
    return max((number for number, reached in enumerate(steps, start=1) if reached), default=0)


def rung_of(name: str) -> int:
    """Returns the rung of a preset by its shipped passport, 0 if it has none."""
    return rung(shipped().get(name, {}))
