"""Prints each fact of the catalog that differs from timm's without a reason.

    python -m weights.counterparts

The reasons stand in `tests/data/counterparts.json`, with the release of timm beside which they were
written. Facts of timm's models come from its table of pretrained weights and from
`families/timm/registry.json`, so that no model is built.
"""

import fnmatch
import json
import sys
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.families.timm.architectures import find_row, read_defaults
from keras_vit.images.protocols import complete
from keras_vit.presets.catalog import CATALOG, Preset

TABLE = json.loads(
    (Path(__file__).parents[1] / "tests" / "data" / "counterparts.json").read_text("utf-8")
)
"""The releases that were compared, and each difference with its reason."""
_HERE = {"GELU": "gelu", "SiLU": "silu", "avg": "gap", "dinov3-license": "licenseref-dinov3"}
"""Words of timm, and those of the catalog, in small letters."""

Facts = dict[str, Any]


def names_in(library: str) -> dict[str, str]:
    """Returns the names of the catalog's rows in another library."""
    rows = CATALOG.values()
    return {row.name: row.counterparts[library] for row in rows if library in row.counterparts}


def main() -> int:
    """Prints the differences and the reasons without one; returns 1 if there are any."""
    unnamed, idle = compare_with_timm()
    for line in (*unnamed, *(f"no difference: {reason}" for reason in idle)):
        print(line)
    return int(bool(unnamed or idle))


def compare_with_timm() -> tuple[list[str], list[Facts]]:
    """Returns the differences that have not exactly one reason, and the reasons without one."""
    import timm

    unnamed, used = [], []
    for name, tag in names_in("timm").items():
        row, config = CATALOG[name], timm.get_pretrained_cfg(tag)
        mine, theirs = _of_keras_vit(row), _of_timm(tag, config)
        stated = {license.lower() for license in (row.license, *row.licenses.values())}
        if _HERE.get(config.license, config.license) not in stated:
            unnamed.append(f"{name}: license, {sorted(stated)} here, {config.license} in timm")
        if config.url and config.url.endswith(".npz"):
            addresses = str(row.source), config.url
            mine["file"], theirs["file"] = (url.rpartition("/")[2] for url in addresses)
            if theirs["file"] != (row.files_elsewhere.get("timm") or mine["file"]):
                unnamed.append(f"{name}: timm's file is {theirs['file']}")
        for fact in (fact for fact in mine if mine[fact] != theirs[fact]):
            pair = mine[fact], theirs[fact]
            reasons = [
                difference
                for difference in TABLE["differences"]
                if difference["fact"] == fact
                and any(fnmatch.fnmatchcase(name, pattern) for pattern in difference["rows"])
                and (difference["ours"], difference["theirs"]) in (pair, (None, None))
            ]
            used += reasons
            if len(reasons) != 1:
                unnamed.append(f"{name}: {fact}, {pair[0]} here, {pair[1]} in timm")
    return unnamed, [reason for reason in TABLE["differences"] if reason not in used]


def _of_keras_vit(row: Preset) -> Facts:
    """Returns the facts of a row; `crop` is the share of the resized image's smaller side."""
    config, protocol = row.config(), complete(row.protocol)
    crop, interpolation = protocol.get("crop_pct", 1.0), protocol.get("interpolation", "bilinear")
    squashes = protocol["name"] == "paper" or protocol.get("crop_mode") == "squash"
    if protocol["name"] == "big_vision":
        interpolation = protocol["method"]
        crop = (protocol["image_size"] or 224) / (protocol["resize_small"] or 256)
    return {
        "pixels": row.image_size,
        "classes": config.projection_size or config.num_classes,
        "activation": config.block.activation,
        "registers": config.tokens.registers,
        "qkv_bias": bool(config.block.qkv_bias),
        "layer_scale": config.block.layer_scale is not None,
        "pre_norm": config.block.input_norm == "tokens",
        "head": config.pool.kind,
        "mean": protocol["mean"],
        "std": protocol["std"],
        "interpolation": interpolation,
        "crop": crop,
        "squash": squashes and protocol.get("crop_pct", 1.0) == 1.0,
    }


def _of_timm(tag: str, config: Any) -> Facts:
    """Returns the facts of a pretrained model of timm, without a model built."""
    row = find_row(tag)
    if row is None:
        raise KeyError(f"{tag}: no architecture of timm's in families/timm/registry.json")
    given = {"global_pool": "token", "act_layer": "gelu", **read_defaults(row), **row}
    is_distilled = "Distilled" in given.get("class", "")
    pool = "token_and_distillation" if is_distilled else given["global_pool"]
    mean, std = (v[0] if len(set(v)) == 1 else list(v) for v in (config.mean, config.std))
    return {
        "pixels": config.input_size[-1],
        "classes": config.num_classes,
        "activation": _HERE.get(given["act_layer"], given["act_layer"]),
        "registers": given.get("reg_tokens", given.get("num_reg_tokens", 0)),
        "qkv_bias": given.get("qkv_bias", True),
        "layer_scale": given.get("init_values") is not None,
        "pre_norm": given.get("pre_norm", False) or given.get("use_pre_transformer_norm", False),
        "head": _HERE.get(pool, pool),
        "mean": mean,
        "std": std,
        "interpolation": config.interpolation,
        "crop": config.crop_pct,
        "squash": config.crop_mode == "squash",
    }


if __name__ == "__main__":
    sys.exit(main())
