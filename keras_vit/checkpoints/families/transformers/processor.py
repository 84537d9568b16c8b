"""transformers' preprocessing of images: `preprocessor_config.json`, in current and older forms."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.families.family import (
    Images,
    per_channel,
    warn_of_crop,
    warn_of_protocol,
)
from keras_vit.checkpoints.families.keys import Json, naming, number, stored_image_size
from keras_vit.checkpoints.families.protocols import CLIP, IMAGENET
from keras_vit.config import ViTConfig
from keras_vit.errors import shown
from keras_vit.images.protocols import TENSOR_FILTERS, ProtocolSpec, complete
from keras_vit.support.text import log

Size = tuple[int, int]

FILE, RELEASE = "preprocessor_config.json", "transformers_version"
"""The key, here or in config.json, with the release of transformers that wrote the file."""

_RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's filters by the values of `resample`."""


_CLIP: dict[str, Any] = {"image_mean": CLIP["mean"], "image_std": CLIP["std"], "resample": 3}
_CROPPED: dict[str, Any] = {
    **_CLIP, "size": {"shortest_edge": 224}, "crop_size": 224, "do_center_crop": True
}  # fmt: skip
_SPLIT = {"resample": 1, "do_pad": True, "do_image_splitting": True}
_OF_CLASS: dict[str, dict[str, Any]] = {
    "CLIP": _CROPPED,
    "ChineseCLIP": _CROPPED,
    "Bit": _CROPPED,
    "Flava": {**_CLIP, "crop_size": 224, "do_center_crop": True},
    "DeiT": {"size": 256, "crop_size": 224, "do_center_crop": True, "resample": 3},
    "DINOv3ViT": {"form": "float", "image_mean": IMAGENET["mean"], "image_std": IMAGENET["std"]},
    "Beit": {"resample": 3},
    "DPT": {"resample": 3},
    "Siglip": {"resample": 3},
    "Blip": _CLIP,
    "GotOcr2": _CLIP,
    "OwlViT": _CLIP,
    "Owlv2": {**_CLIP, "resample": 2, "do_pad": True},
    "Idefics3": _SPLIT,
    "SmolVLM": _SPLIT,
    "Tipsv2": {"form": "tensor", "size": 448, "do_normalize": False},
}
"""Prefix of the name of a class -> its values for keys that a file lacks or has as null.

`form` is the form of resizing if a class has only one, see `_form`.
"""
_OF_OTHERS: dict[str, Any] = {"size": 224, "resample": 2, "image_mean": 0.5, "image_std": 0.5}
"""The values of `ViTImageProcessor`, and of classes that are not in `_OF_CLASS`."""

_OTHER_STEPS = (
    *("do_pad", "keep_aspect_ratio", "do_image_splitting", "crop_to_patches", "size_divisor"),
    *("do_flip_channel_order", "rescale_offset", "crop_pct"),
)
"""Keys of steps that protocols do not support; an image must also be resized."""
_OF_SEVERAL_SIZES = ("keep_aspect_ratio", "ensure_multiple_of", "do_pad", "size_divisor")
"""Keys with which DPT's processor resizes images to different sizes."""


def _read(files: Json) -> ProtocolSpec | None:
    if FILE not in files:
        return None
    processor = _complete(files)
    if str(processor.get("image_processor_type")).startswith("DPT"):
        values = [processor.get(key) for key in _OF_SEVERAL_SIZES]
        if any(value is True or value not in (None, False, 1) for value in values):
            log.warning(
                "%s keeps the aspect ratio; keras_vit resizes all images to one size.", FILE
            )
        processor = {k: v for k, v in processor.items() if k not in _OF_SEVERAL_SIZES}
    size, edge, crop = _geometry(processor)
    is_pure = processor.get("do_resize", True) and not any(map(processor.get, _OTHER_STEPS))
    is_pure = is_pure and processor.get("ensure_multiple_of", 1) == 1
    if is_pure and edge is not None and crop is not None and max(crop) <= edge:
        return _protocol(processor, crop_mode="center", crop_pct=max(crop) / edge)
    if is_pure and size is not None:
        crop_pct = 1.0 if crop is None else min(crop[0] / size[0], crop[1] / size[1], 1.0)
        if crop is None or [round(side / crop_pct) for side in crop] == list(size):
            return _protocol(processor, crop_mode="squash", crop_pct=crop_pct)
    stated = {
        key: processor[key]
        for key in ("size", "crop_size", "do_resize", "ensure_multiple_of", *_OTHER_STEPS)
        if key in processor
    }
    warn_of_protocol(f"{FILE} with {', '.join(f'{k}={v!r}' for k, v in stated.items())}")
    return None


def _image_size(files: Json) -> Size | None:
    """Returns (height, width) of prepared images, or None if the files do not state it."""
    if FILE not in files:
        return None
    processor = _complete(files)
    size, _, crop = _geometry(processor)
    return crop or (size if processor.get("do_resize", True) else None)


def _of_class(processor: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = processor.get("image_processor_type") or processor.get("feature_extractor_type")
    return _OF_CLASS.get(re.split("ImageProcessor|FeatureExtractor", str(kind))[0], {})


def _complete(files: Json) -> dict[str, Any]:
    """Returns a processor with its class's values for absent or null keys."""
    processor, release = files[FILE], files.get("config.json", {}).get(RELEASE)
    usual = {RELEASE: release, **_OF_OTHERS, **_of_class(processor)}
    values = {**usual, **{key: value for key, value in processor.items() if value is not None}}
    if isinstance(values["size"], int) and isinstance(usual["size"], Mapping):
        values["size"] = {"shortest_edge": values["size"]}  # before transformers 4.25
    return values


def _geometry(processor: Mapping[str, Any]) -> tuple[Size | None, int | None, Size | None]:
    """Returns the size to resize to, or that of the smaller side, and the size of the crop."""
    size = processor["size"]
    is_edge = isinstance(size, Mapping) and "longest_edge" not in size
    edge = size.get("shortest_edge") if is_edge else None
    crops = processor.get("do_center_crop", edge is not None)
    crop = processor.get("crop_size") if crops else None
    sides = (*(_sides(size) or ()), *(_sides(crop) or ()), *(() if edge is None else (edge,)))
    if any(type(side) is not int or side < 1 for side in sides):
        raise ValueError(
            f"{FILE} has size={shown(size)}, crop_size={shown(crop)}, expected sizes in pixels"
        )
    return _sides(size), edge, _sides(crop)


def _form(processor: Mapping[str, Any]) -> str:
    """Returns the form of resizing: by Pillow, of integer tensors, or of float tensors.

    Classes with tensors are those with `Fast` in transformers 4, and every class in transformers
    5. A file without a release is assumed to be from transformers 4, which wrote most files.
    """
    kind, release = (str(processor.get(key)) for key in ("image_processor_type", RELEASE))
    if _filter(processor) not in TENSOR_FILTERS:
        return "pillow"
    is_of_tensors = kind.endswith("Fast") or re.match(r"[5-9]|\d\d", release)
    return str(_of_class(processor).get("form", "tensor" if is_of_tensors else "pillow"))


def _protocol(processor: Mapping[str, Any], **geometry: Any) -> ProtocolSpec:
    """Returns the protocol of a processor, with the given geometry."""
    # (x * factor - mean) / std for pixels in [0, 255], in terms of x / 255
    factor = (
        number(processor, "rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1
    )
    own = (
        processor if processor.get("do_normalize", True) else {"image_mean": 0.0, "image_std": 1.0}
    )
    scaled: dict[str, Any] = {}
    for key in ("mean", "std"):
        value = own[f"image_{key}"]
        with naming(f"{FILE} has image_{key}", value):
            # 255 * (1 / 255) is not always 1; published values have fewer than 9 digits
            several = value if isinstance(value, list) else [value]
            scaled[key] = [round(number / (255 * factor), 9) for number in several]
    form = {"interpolation": _filter(processor), "resize": _form(processor)}
    return complete({"name": "transformers", **geometry, **scaled, **form})


def _filter(processor: Mapping[str, Any]) -> str:
    resample = processor["resample"]
    if resample not in range(len(_RESAMPLE)):
        raise ValueError(f"{FILE} has resample={shown(resample)}, expected 0 to 5")
    return _RESAMPLE[resample]


def _sides(size: Any) -> tuple[int, int] | None:
    """Returns (height, width) from a size in the current form or that of feature extractors."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping) and {"height", "width"} <= size.keys():
        return size["height"], size["width"]
    if isinstance(size, list) and len(size) == 2:
        return size[1], size[0]  # feature extractors state (width, height)
    return None


_CLASSES = {
    "pillow": ("ViTImageProcessor", "BitImageProcessor"),
    "tensor": ("ViTImageProcessorFast", "BitImageProcessorFast"),
    "float": ("DINOv3ViTImageProcessorFast", "DINOv3ViTImageProcessorFast"),
}
"""Form of resizing -> class that squashes, and class that resizes the smaller side and crops."""


def _expresses(protocol: Mapping[str, Any]) -> bool:
    if protocol["name"] != "timm":
        return protocol["name"] == "transformers"
    return protocol["crop_mode"] == "center" or (
        protocol["crop_mode"] == "squash" and protocol["crop_pct"] == 1
    )


def _write(protocol: dict[str, Any], config: ViTConfig) -> dict[str, Any]:
    height, width = config.image_size or stored_image_size(config)
    crops_smaller_side = protocol["crop_mode"] == "center"
    preprocessor: dict[str, Any] = {
        "image_processor_type": _CLASSES[protocol.get("resize", "pillow")][crops_smaller_side],
        **{"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True},
        "size": {"height": height, "width": width},
        "resample": _RESAMPLE.index(protocol["interpolation"]),
        **{f"image_{key}": per_channel(protocol[key], config) for key in ("mean", "std")},
    }
    if config.stem.is_packed:  # images keep their aspect ratio and are not cropped
        fast = "Fast" if protocol.get("resize") == "tensor" else ""
        preprocessor |= {
            "image_processor_type": f"Siglip2ImageProcessor{fast}",
            "patch_size": config.patch_size[0],
        }
        del preprocessor["size"]
    elif crops_smaller_side or protocol["crop_pct"] < 1:
        if of_timm := protocol["name"] == "timm":
            warn_of_crop("transformers")
        whole = math.floor if of_timm else round
        scaled = {s: whole(side / protocol["crop_pct"]) for s, side in preprocessor["size"].items()}
        if crops_smaller_side:
            scaled = {"shortest_edge": max(scaled.values())}
        preprocessor |= {"do_center_crop": True, "crop_size": preprocessor["size"], "size": scaled}
    return {FILE: preprocessor}


processor = Images(
    default=lambda config: "transformers", read=_read, write=_write, expresses=_expresses
)

processor_of_any_size = dataclasses.replace(processor, image_size=_image_size)
"""`processor` for classes that resize their positions to their images."""
