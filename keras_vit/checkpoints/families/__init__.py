"""The families of ViT checkpoints: each library's names, shapes and JSON, as tables."""

from keras_vit.checkpoints.families import big_vision as _big_vision
from keras_vit.checkpoints.families import facebook as _facebook
from keras_vit.checkpoints.families import google as _google
from keras_vit.checkpoints.families import keras_hub as _keras_hub
from keras_vit.checkpoints.families import keras_vit as _keras_vit
from keras_vit.checkpoints.families import open_clip as _open_clip
from keras_vit.checkpoints.families import timm as _timm
from keras_vit.checkpoints.families import torchvision as _torchvision
from keras_vit.checkpoints.families import transformers as _transformers
from keras_vit.checkpoints.families.family import Family, Format
from keras_vit.errors import CheckpointError, listed, nearest

FAMILIES: tuple[Family, ...] = (
    *_keras_vit.FAMILIES,
    *_google.FAMILIES,
    *_big_vision.FAMILIES,
    *_timm.FAMILIES,
    *_transformers.FAMILIES,
    *_keras_hub.FAMILIES,
    *_torchvision.FAMILIES,
    *_facebook.FAMILIES,
    *_open_clip.FAMILIES,
)
"""All families. If several can store a model, the first is written."""

FORMATS = tuple(
    Format(family, name, row) for family in FAMILIES for name, row in family.classes.items()
)
"""Every class of every family."""
KERAS_VIT = FORMATS[0]
"""The format of presets."""
NAMES = tuple(dict.fromkeys(format.name for format in FORMATS))
"""The names of formats: the library's for the plain ViT, `"library/family"` for other networks."""


def formats_named(name: str) -> tuple[Format, ...]:
    """Returns the formats with a name, or every format of a library.

    Args:
        name: a name such as `"google"` or `"transformers/dinov2"`; the name of a library
            such as `"transformers"` stands for each of its families.

    Raises:
        CheckpointError: the name is unknown; the message gives the nearest name.
    """
    if name not in NAMES:
        raise CheckpointError(
            f"Unknown family {name!r}.{nearest(name, NAMES)} Known: {listed(NAMES, 20)}."
        )
    return tuple(f for f in FORMATS if f.name == name or f.name.startswith(f"{name}/"))


__all__ = ["FAMILIES", "FORMATS", "KERAS_VIT", "NAMES", "Family", "Format", "formats_named"]
