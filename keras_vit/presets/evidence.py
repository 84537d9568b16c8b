"""How thoroughly each preset was verified: `evidence.json`, which `weights/verify.py` writes."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

AS_PUBLISHED = "as published"
"""Value of `read` if the JSON is the published one."""

LEVELS = (
    "not yet loaded by us",
    "JSON and shapes of the published file read",
    "sha256 pinned",
    "logits equal those of the original code",
    "accuracy measured on 1,000 images",
    "accuracy measured on 50,000 images",
)
"""The levels of verification, from none up."""


@functools.cache
def shipped() -> dict[str, dict[str, Any]]:
    """Returns the records that came with keras_vit, by the name of the preset."""
    rows = json.loads(Path(__file__).with_name("evidence.json").read_text(encoding="utf-8"))
    return {facts["name"]: facts for facts in rows}


def level(record: Mapping[str, Any]) -> int:
    """Returns the highest level of `LEVELS` that a record reaches; an empty one reaches 0."""
    origin, images = record.get("origin", ""), record.get("images", 0)
    # keras_vit is the origin only of presets that were trained with it.
    by_origin = origin and (record["family"] == "keras_vit" or "keras_vit" not in origin)
    steps = (
        record.get("read") == AS_PUBLISHED,
        record.get("sha256"),
        by_origin,
        images >= 1_000,
        images >= 50_000,
    )
    return max((number for number, reached in enumerate(steps, start=1) if reached), default=0)


def evidence_level(name: str) -> int:
    """Returns the level of a preset by its shipped record, 0 if it has none."""
    return level(shipped().get(name, {}))
