"""transformers' preparation of images: `preprocessor_config.json`, in present and former forms."""

import math
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import PreparationWords, per_channel, warn_of_protocol
from keras_vit.checkpoints.dialects.json_fields import Json, naming, number
from keras_vit.checkpoints.dialects.torch_conventions import stored_image_size
from keras_vit.config import ViTConfig
from keras_vit.errors import shown
from keras_vit.images.protocols import TENSOR_FILTERS, ProtocolSpec, complete

FILE = "preprocessor_config.json"

_RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's filters by their numbers, which are the values of `resample`."""


_CROPPING = ("CLIP", "ChineseCLIP", "Bit")
"""Starts of the names of classes that read an int `size` as the smaller side, and that crop to 224
pixels where `crop_size` is absent."""

_NO_NUMBER = ("resample", "image_mean", "image_std", "rescale_factor", "crop_size")
"""Keys that newer releases write as null where the class's default holds."""


def _read(files: Json) -> ProtocolSpec | None:
    if FILE not in files:
        return None
    processor = {k: v for k, v in files[FILE].items() if v is not None or k not in _NO_NUMBER}
    size, crop = (_sides(processor.get(key)) for key in ("size", "crop_size"))
    edge = _shortest_edge(processor)
    if edge is not None and crop is None and _crops_by_default(processor):
        crop = (224, 224)
    if edge is not None and crop is not None:
        return _protocol(processor, name="timm", crop_pct=min(crop) / edge)
    if (processor.get("size") and size is None) or processor.get("do_pad"):
        warn_of_protocol(f"{FILE} with size={processor.get('size')!r} or do_pad")
        return None
    crop_pct = 1.0
    if processor.get("do_center_crop") and size and crop:
        crop_pct = min(crop[0] / size[0], crop[1] / size[1], 1.0)
    return _protocol(processor, name="transformers", crop_pct=crop_pct, resize=_form(processor))


def _form(processor: Mapping[str, Any]) -> str:
    """Returns the form of resizing: of Pillow, of tensors of whole numbers, or of floats.

    A file names the class that its release used. Without `Fast` it is read as of transformers 4,
    which wrote most files; transformers 5 takes tensors for these files too.
    """
    kind = str(processor.get("image_processor_type") or "")
    if _filter(processor) not in TENSOR_FILTERS:
        return "pillow"
    if kind.startswith("DINOv3"):
        return "float"
    return "tensor" if kind.endswith("Fast") else "pillow"


def _protocol(
    processor: Mapping[str, Any], name: str, crop_pct: float, **form: str
) -> ProtocolSpec:
    """Returns the protocol of a name with the filter, mean and std of a processor."""
    # (x * factor - mean) / std of pixels in [0, 255], in terms of x / 255
    factor = (
        number(processor, "rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1
    )
    normalizes = processor.get("do_normalize", True)
    scaled: dict[str, Any] = {}
    for ours, key, no_change in (("mean", "image_mean", 0.0), ("std", "image_std", 1.0)):
        value = processor.get(key, 0.5) if normalizes else no_change
        with naming(key, value):
            scaled[ours] = _scaled(value, 255 * factor)
    interpolation = _filter(processor)
    return complete(
        {"name": name, "interpolation": interpolation, "crop_pct": crop_pct, **scaled, **form}
    )


def _filter(processor: Mapping[str, Any]) -> str:
    resample = processor.get("resample", 2)
    if resample not in range(len(_RESAMPLE)):
        raise ValueError(f"{FILE} has resample={shown(resample)}, expected 0 to 5")
    return _RESAMPLE[resample]


def _shortest_edge(processor: Mapping[str, Any]) -> int | None:
    """Returns the smaller side before a central crop, as CLIP and DINOv2 state it, or None."""
    size = processor.get("size")
    edge = size.get("shortest_edge") if isinstance(size, Mapping) else None
    if isinstance(size, int) and _crops_by_default(processor):
        edge = size  # before transformers 4.25
    is_cropped = processor.get("do_center_crop", True) and not processor.get("do_pad")
    return edge if isinstance(edge, int) and edge > 0 and is_cropped else None


def _crops_by_default(processor: Mapping[str, Any]) -> bool:
    """Whether the processor is of a class that scales the smaller side and then crops."""
    kinds = (processor.get(f"{kind}_type") for kind in ("image_processor", "feature_extractor"))
    return any(isinstance(kind, str) and kind.startswith(_CROPPING) for kind in kinds)


def _sides(size: Any) -> tuple[int, int] | None:
    """Returns (height, width) from a size in today's form or in the form of feature extractors."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping) and {"height", "width"} <= size.keys():
        return size["height"], size["width"]
    if isinstance(size, list) and len(size) == 2:
        return size[1], size[0]  # feature extractors state (width, height)
    return None


def _scaled(value: Any, factor: float) -> Any:
    several = value if isinstance(value, list) else [value]
    # 255 * (1 / 255) is not always 1; published numbers have fewer digits than 9
    return [round(number / factor, 9) for number in several]


_CLASSES = {
    "pillow": "ViTImageProcessor",
    "tensor": "ViTImageProcessorFast",
    "float": "DINOv3ViTImageProcessorFast",
}


def _crops_the_smaller_side(protocol: Mapping[str, Any]) -> bool:
    return protocol["name"] == "timm" and protocol["crop_mode"] == "center"


def _expresses(protocol: Mapping[str, Any]) -> bool:
    squash = protocol.get("crop_mode") == "squash" and protocol["crop_pct"] == 1
    return squash or protocol["name"] == "transformers" or _crops_the_smaller_side(protocol)


def _write(protocol: dict[str, Any], config: ViTConfig) -> dict[str, Any]:
    height, width = stored_image_size(config)
    preprocessor: dict[str, Any] = {
        "image_processor_type": _CLASSES[protocol.get("resize", "pillow")],
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": _RESAMPLE.index(protocol["interpolation"]),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": per_channel(protocol["mean"], config),
        "image_std": per_channel(protocol["std"], config),
    }
    if _crops_the_smaller_side(protocol):
        edge = math.floor(min(height, width) / protocol["crop_pct"])
        preprocessor |= {
            "image_processor_type": "BitImageProcessor",
            "do_center_crop": True,
            "crop_size": preprocessor["size"],
            "size": {"shortest_edge": edge},
        }
    elif protocol["crop_pct"] < 1:
        scaled = {"height": height, "width": width}
        scaled = {s: round(pixels / protocol["crop_pct"]) for s, pixels in scaled.items()}
        preprocessor |= {"do_center_crop": True, "crop_size": preprocessor["size"], "size": scaled}
    if config.native_aspect:
        fast = "Fast" if protocol.get("resize") == "tensor" else ""
        preprocessor |= {
            "image_processor_type": f"Siglip2ImageProcessor{fast}",
            "patch_size": config.patch_size[0],
        }
        del preprocessor["size"]
    return {FILE: preprocessor}


processor = PreparationWords(
    default=lambda config: "transformers", read=_read, write=_write, expresses=_expresses
)
