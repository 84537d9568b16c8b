"""Loads a model for prediction in a command, a server or a worker."""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from keras_vit.presets.source import Source

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer


def load_to_answer(
    source: str | os.PathLike[str] | Source,
    *,
    pixel_range: tuple[float, float] | None = None,
    draft: bool = False,
    **fields: Any,
) -> "VisionTransformer":
    """Loads a model for prediction in a command, a server or a worker.

    Args:
        source: as for `VisionTransformer.from_preset`.
        pixel_range: values of black and white in images of more than 8 bits, see `Preprocessor`.
        draft: whether large JPEG files are decoded at reduced size, see `Preprocessor`.
        **fields: further arguments of `VisionTransformer.from_preset`.

    Raises:
        PresetError, CheckpointError, ConfigError: as `VisionTransformer.from_preset`.
    """
    from keras_vit.models.vision_transformer import VisionTransformer  # starts a backend

    model = VisionTransformer.from_preset(source, **fields)
    if pixel_range is not None or draft:
        model.preprocessor = dataclasses.replace(
            model.preprocessor, pixel_range=pixel_range, draft=draft
        )
    return model
