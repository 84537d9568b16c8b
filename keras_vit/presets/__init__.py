"""Presets: named models with weights, preprocessing, labels and provenance in a folder.

Names are imported on first use, because `checkpoints` imports modules of this package, and
`describe` is a function of `checkpoints`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_vit.checkpoints import describe
    from keras_vit.presets.augreg import search_augreg
    from keras_vit.presets.catalog import list_presets
    from keras_vit.presets.preset_config import PresetConfig
    from keras_vit.presets.save import save_preset
    from keras_vit.presets.upload import upload_preset

__all__ = [
    "PresetConfig",
    "describe",
    "list_presets",
    "save_preset",
    "search_augreg",
    "upload_preset",
]

_HOMES = {
    "PresetConfig": "presets.preset_config",
    "describe": "checkpoints",
    "list_presets": "presets.catalog",
    "save_preset": "presets.save",
    "search_augreg": "presets.augreg",
    "upload_preset": "presets.upload",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"keras_vit.{_HOMES[name]}"), name)
