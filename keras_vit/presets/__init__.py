"""Presets: named models with weights, preprocessing, labels and provenance in a folder."""

from keras_vit.presets.augreg import search_augreg
from keras_vit.presets.catalog import list_presets
from keras_vit.presets.load import describe, describe_preset, load_preset
from keras_vit.presets.preset_config import is_preset
from keras_vit.presets.save import save_preset
from keras_vit.presets.upload import upload_preset

__all__ = [
    "describe",
    "describe_preset",
    "is_preset",
    "list_presets",
    "load_preset",
    "save_preset",
    "search_augreg",
    "upload_preset",
]
