"""The facts of a catalog row, as keras_vit and timm state them, under the same names."""

import json
from pathlib import Path

from keras_vit.checkpoints.dialects.timm.architectures import find_row, read_defaults
from keras_vit.images.protocols import complete
from keras_vit.presets.catalog import Preset

TABLE = json.loads((Path(__file__).parents[1] / "data" / "counterparts.json").read_text())
"""The releases that were compared, and each difference with its reason."""

_ACTIVATIONS = {
    "gelu": "exact",
    "GELU": "exact",
    "quick_gelu": "quick",
    "gelu_tanh": "tanh",
    "SiLU": "silu",
}
_SPDX = {
    "apache-2.0": "Apache-2.0",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
    "dinov3-license": "LicenseRef-DINOv3",
}
_POOLS = {"token": "token", "avg": "gap", "map": "map"}


def of_keras_vit(row: Preset) -> dict:
    """The facts of a row; `crop` is the share of the resized image's smaller side."""
    config, protocol = row.config(), complete(row.protocol)
    squashes = protocol["name"] == "paper" or (
        protocol["name"] == "transformers" and protocol["crop_mode"] == "squash"
    )
    facts = {
        "pixels": row.image_size,
        "classes": config.projection_dim or config.num_classes,
        "licenses": {row.license, *row.licenses.values()},
        "activation": config.numerics.gelu if config.mlp == "plain" else "silu",
        "registers": config.num_registers,
        "qkv_bias": bool(config.qkv_bias),
        "layer_scale": config.layer_scale is not False,
        "pre_norm": config.pre_norm,
        "head": config.pooling,
        "mean": protocol["mean"],
        "std": protocol["std"],
        "interpolation": protocol.get("interpolation", "bilinear"),
        "crop": protocol.get("crop_pct", 1.0),
        "squash": squashes and protocol.get("crop_pct", 1.0) == 1.0,
    }
    if protocol["name"] == "big_vision":
        facts["interpolation"] = protocol["method"]
        facts["crop"] = (protocol["image_size"] or 224) / (protocol["resize_small"] or 256)
    if not row.source.startswith("hf://"):
        facts["file"] = row.source.rpartition("/")[2]
    return facts


def of_timm(tag: str) -> dict:
    """The facts of a pretrained model of timm, without a model built."""
    import timm

    config = timm.get_pretrained_cfg(tag)
    row = find_row(tag)
    assert row is not None, f"{tag}: no architecture of timm's in the dialect's registry.json"
    given = {"global_pool": "token", **read_defaults(row), **row}
    is_distilled = "Distilled" in given.get("class", "")
    pool = "token_and_distillation" if is_distilled else _POOLS[given["global_pool"]]
    facts = {
        "pixels": config.input_size[-1],
        "classes": config.num_classes,
        "license": _SPDX[config.license],
        "activation": _ACTIVATIONS[given.get("act_layer", "gelu")],
        "registers": given.get("reg_tokens", given.get("num_reg_tokens", 0)),
        "qkv_bias": given.get("qkv_bias", True),
        "layer_scale": given.get("init_values") is not None,
        "pre_norm": given.get("pre_norm", False) or given.get("use_pre_transformer_norm", False),
        "head": pool,
        "mean": _one(config.mean),
        "std": _one(config.std),
        "interpolation": config.interpolation,
        "crop": config.crop_pct,
        "squash": config.crop_mode == "squash",
    }
    if config.url and config.url.endswith(".npz"):
        facts["file"] = config.url.rpartition("/")[2]
    return facts


def _one(values: tuple) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else list(values)
