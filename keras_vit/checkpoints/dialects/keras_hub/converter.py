"""`image_converter.json` and `preprocessor.json`: keras-hub's preparation of images."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_vit.checkpoints.dialects.base import PreparationWords, per_channel, warn_of_protocol
from keras_vit.checkpoints.dialects.json_fields import Json, naming, object_at
from keras_vit.checkpoints.dialects.keras_hub.objects import serialised
from keras_vit.config import ViTConfig
from keras_vit.images.protocols import ProtocolSpec, complete


def _read(files: Json) -> ProtocolSpec | None:
    """Reads `image_converter.json`, or the converter in `preprocessor.json`."""
    places = {
        "image_converter.json": ("config",),
        "preprocessor.json": ("config", "image_converter", "config"),
    }
    file = next((name for name in places if name in files), None)
    if file is None:
        return None
    converter = object_at(files[file], places[file])
    method = converter.get("interpolation", "bilinear")
    if method != "bilinear" or converter.get("pad_to_aspect_ratio"):
        warn_of_protocol(f"An image converter with interpolation={method!r} or pad_to_aspect_ratio")
        return None
    # x * scale + offset = (x / 255 - mean) / std
    scale, offset = converter.get("scale"), converter.get("offset")
    with naming("scale", scale):
        scales, offsets = np.broadcast_arrays(
            1.0 if scale is None else scale, 0.0 if offset is None else offset
        )
        std = [1 / (255 * number) for number in scales.reshape(-1).tolist()]
        mean = [-o * d for o, d in zip(offsets.reshape(-1).tolist(), std, strict=True)]
        return complete(
            {
                "name": "keras_hub",
                "crop_to_aspect_ratio": converter.get("crop_to_aspect_ratio", True),
                "antialias": converter.get("antialias", False),
                "mean": [round(number, 9) for number in mean],
                "std": [round(number, 9) for number in std],
            }
        )


def _expresses(protocol: Mapping[str, Any]) -> bool:
    """Whether keras-hub has the protocol: its own, or `paper`, which is the same without a crop."""
    return protocol["name"] in ("keras_hub", "paper")


def _writer(module: str, class_name: str) -> Callable[[dict[str, Any], ViTConfig], dict[str, Any]]:
    """Returns the function that writes converter and preprocessor of a family's classifier."""

    def write(protocol: dict[str, Any], config: ViTConfig) -> dict[str, Any]:
        if not config.num_classes:
            return {}
        height, width = fitting_image_size(config)
        std = per_channel(protocol["std"], config)
        mean = per_channel(protocol["mean"], config)
        converter = serialised(
            f"{module}.{module}_image_converter",
            f"{class_name}ImageConverter",
            {
                "image_size": [height, width],
                "scale": [1 / (255 * number) for number in std],
                "offset": [-m / s for m, s in zip(mean, std, strict=True)],
                "interpolation": "bilinear",
                "antialias": protocol.get("antialias", False),
                "crop_to_aspect_ratio": protocol.get("crop_to_aspect_ratio", False),
                "pad_to_aspect_ratio": False,
            },
        )
        preprocessor = serialised(
            f"{module}.{module}_image_classifier_preprocessor",
            f"{class_name}ImageClassifierPreprocessor",
            {"image_converter": converter, "config_file": "preprocessor.json"},
        )
        return {
            "image_converter.json": converter,
            "preprocessor.json": preprocessor,
            "task.json": {"config": {"preprocessor": preprocessor}},
        }

    return write


def fitting_image_size(config: ViTConfig) -> tuple[int, int]:
    """Returns the image size of the stored positions, which keras-hub does not resize."""
    rows, columns = config.source_grid
    return rows * config.patch_size[0], columns * config.patch_size[1]


def find_converter(module: str, class_name: str) -> PreparationWords:
    """Returns the JSON for the preparation of images of a family.

    Args:
        module: module in keras-hub's models, such as `"vit"`.
        class_name: first part of the names of its classes, such as `"ViT"`.
    """
    return PreparationWords(
        default=lambda config: "keras_hub",
        read=_read,
        write=_writer(module, class_name),
        expresses=_expresses,
    )


converter = find_converter("vit", "ViT")
