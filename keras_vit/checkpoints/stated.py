"""Reads the JSON files of a checkpoint for each library."""

from typing import Any

from keras_vit.checkpoints.families import FORMATS, KERAS_VIT, formats_named
from keras_vit.checkpoints.families.family import Format, Library, Stated
from keras_vit.checkpoints.families.keys import Json
from keras_vit.checkpoints.families.timm.by_name import merge_config
from keras_vit.checkpoints.opening import OpenSource
from keras_vit.errors import CheckpointError


def read_json(
    files: OpenSource, caller: dict[str, Any]
) -> tuple[Json, dict[Library, Stated], tuple[Format, ...]]:
    """Returns the JSON files, what they state by library, and the formats that a file may have.

    Args:
        files: the open source.
        caller: the caller's arguments, by path; `timm`, which replaces config.json, is removed.

    Raises:
        CheckpointError: the JSON is invalid, or names a feature that keras_vit lacks; or the
            caller's `family` is unknown.
    """
    json: Json = files.json
    try:
        if files.preset is not None:
            caller.setdefault("family", KERAS_VIT.name)
        if (timm := caller.pop("timm", None)) is not None:
            json = _read_timm(timm, json, caller)
        formats = formats_named(caller["family"]) if caller.get("family") else FORMATS
        stated = {
            library: library.read(json, [f for f in formats if f.library is library])
            for library in dict.fromkeys(format.library for format in formats)
        }
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = str(error).removesuffix(".")
        raise CheckpointError(f"{files.reader.path}: {reason}.") from error
    return json, stated, formats


def _read_timm(timm: Any, json: Json, caller: dict[str, Any]) -> Json:
    """Returns the JSON for the caller's argument `timm`."""
    family = caller.setdefault("family", "timm")
    if not str(family).startswith("timm"):
        raise ValueError(
            f"read={{'timm': ...}} is for files of timm, but family={family!r} is given"
        )
    config = merge_config(timm, json.get("config.json", {}))
    if not isinstance(timm, str) and timm.get("num_classes") == 0:
        caller.setdefault("num_classes", 0)
    return {"config.json": config}
