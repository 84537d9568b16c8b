"""timm's preprocessing of images: `pretrained_cfg` in `config.json` (`timm/data/config.py`)."""

from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.families.family import (
    Images,
    per_channel,
    warn_of_crop,
    warn_of_protocol,
)
from keras_vit.checkpoints.families.keys import Json, object_at, stored_image_size
from keras_vit.checkpoints.families.protocols import CLIP, IMAGENET
from keras_vit.config import ViTConfig
from keras_vit.config.rules import pair
from keras_vit.images.protocols import FILTERS, ProtocolSpec, complete

KEYS = ("crop_pct", "interpolation", "crop_mode", "mean", "std")
"""Keys of `pretrained_cfg` for the preprocessing; absent keys have `IMAGENET`'s values."""


def _read(files: Json) -> ProtocolSpec | None:
    """Returns the protocol in `pretrained_cfg`, or in a `config.json` with the same keys."""
    config = files.get("config.json")
    if config is None:
        return None
    stated = object_at(config, ("pretrained_cfg",))
    pretrained = stated or config
    own = {key: pretrained[key] for key in KEYS if pretrained.get(key) is not None}
    if not own and not stated:
        return None
    if own.get("interpolation", "bicubic") not in FILTERS:
        warn_of_protocol(f"config.json with interpolation={own['interpolation']!r}")
        return None
    protocol = {**IMAGENET, "crop_mode": "center", **own}
    for key in ("mean", "std"):  # may be absent for models without 3 channels
        if key not in own and (pretrained.get("input_size") or [3])[0] != 3:
            protocol[key] = 0.5
    return complete(protocol)


def _image_size(files: Json) -> tuple[int, int] | None:
    """Returns the image size for a model that resizes its positions, or None."""
    config = files.get("config.json", {})
    size = object_at(config, ("pretrained_cfg",)).get("input_size")
    if not size or not object_at(config, ("model_args",)).get("dynamic_img_size"):
        return None
    return pair("input_size", size[-2:] if isinstance(size, list) else size)


def _write(protocol: dict[str, Any], config: ViTConfig) -> dict[str, Any]:
    if protocol["name"] == "transformers" and protocol["crop_mode"] == "center":
        warn_of_crop("timm")
    words = {
        "custom_load": False,
        "input_size": [config.channels, *stored_image_size(config)],
        "fixed_input_size": True,
        **{key: protocol[key] for key in ("interpolation", "crop_pct", "crop_mode")},
        **{key: per_channel(protocol[key], config) for key in ("mean", "std")},
    }
    return {"config.json": {"pretrained_cfg": words}}


def _expresses(protocol: Mapping[str, Any]) -> bool:
    # timm rounds the sides of a squash with a crop down, to other sizes.
    is_squash = protocol.get("crop_mode") == "squash"
    is_odd = is_squash and protocol["crop_pct"] < 1
    return protocol["name"] == "timm" or (protocol["name"] == "transformers" and not is_odd)


def _default(config: ViTConfig) -> ProtocolSpec:
    """Returns timm's usual protocol: a crop of 0.9 at 224 pixels, and of 1.0 from 384 pixels on.

    A model with a projection is a tower of open_clip, usually with CLIP's protocol.
    """
    if config.projection_size:
        return CLIP
    return {"name": "timm", "crop_pct": 1.0 if max(stored_image_size(config)) >= 384 else 0.9}


images = Images(_default, _read, _write, _expresses, _image_size)
