"""The configuration of the wanted model, from the file's configuration and the arguments."""

from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.inspection import OpenedCheckpoint
from keras_vit.config import ViTConfig
from keras_vit.config.rules import pair
from keras_vit.errors import CheckpointError, shown
from keras_vit.text import log

OF_THE_MODEL = (
    "dtype",
    "data_format",
    "name",
    "labels",
    "protocol",
    "provenance",
    "remat",
    "trainable",
)
"""Arguments of `VisionTransformer` that are no fields of its configuration."""


def with_numerics(stored: ViTConfig, asked: dict[str, Any]) -> dict[str, Any]:
    """Returns the caller's fields, with the stored values of numerics that its dict leaves out."""
    if not isinstance(asked.get("numerics"), Mapping):
        return asked
    return {**asked, "numerics": {**stored.numerics.to_dict(), **asked["numerics"]}}


def wanted_config(opened: OpenedCheckpoint, fields: dict[str, Any]) -> ViTConfig:
    """Returns the configuration of the wanted model.

    Args:
        opened: the checkpoint.
        fields: the caller's arguments; they take precedence over the file's configuration.

    Raises:
        CheckpointError: the file leaves the image size open, or lacks the representation layer.
    """
    stored, path = opened.info.config, opened.info.path
    not_config = ("dialect", "variant", "position_grid", *OF_THE_MODEL)
    asked = {name: value for name, value in fields.items() if name not in not_config}
    if opened.info.undetermined:
        raise CheckpointError(
            f"{path}: {stored.num_positions} positions are no square grid, so the file does not "
            "tell its image_size. Give image_size=(height, width) of that many patches, or "
            "position_grid=(rows, columns) of the stored positions."
        )
    if "image_size" in asked and asked["image_size"] is None:
        asked["position_grid"] = stored.source_grid
    elif "image_size" in asked:
        asked["position_grid"] = None
    if pair("patch_size", asked.get("patch_size", stored.patch_size)) != stored.patch_size:
        if stored.resnet is not None:
            raise CheckpointError(
                f"{path}: patch_size={shown(asked['patch_size'])} was asked for; patches of pixels "
                "can be resized, and a hybrid's are of cells of a feature map."
            )
        if stored.image_size is not None:
            asked["position_grid"] = None
    asked_width = asked.get("representation_size")
    if asked_width is not None and asked_width != stored.representation_size:
        raise CheckpointError(
            f"{path}: representation_size={asked_width} was asked for, the file has "
            f"{stored.representation_size}. None leaves the layer behind."
        )
    if opened.dialect.crops and asked.get("image_size") is not None:
        cropped = stored.replace(
            image_size=asked["image_size"], position_grid=None, crop_remainder=True
        )
        if cropped.image_size and any(cropped.remainder_of(cropped.image_size)):
            asked.setdefault("crop_remainder", True)
            rows, columns = cropped.remainder_of(cropped.image_size)
            log.warning(
                "image_size=%s is not a multiple of patch_size=%s: the last %d rows and %d columns "
                "of %s fill no patch and are not seen.",
                cropped.image_size,
                cropped.patch_size,
                rows,
                columns,
                "the feature map" if cropped.resnet else "pixels",
            )
    return stored.replace(**with_numerics(stored, asked))
