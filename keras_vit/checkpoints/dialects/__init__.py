"""The dialects of ViT checkpoints: each library's names, shapes and descriptions of weights."""

from keras_vit.checkpoints.dialects import keras_hub as _keras_hub
from keras_vit.checkpoints.dialects import open_clip as _open_clip
from keras_vit.checkpoints.dialects import timm as _timm
from keras_vit.checkpoints.dialects import transformers as _transformers
from keras_vit.checkpoints.dialects.base import Dialect, Statement, StoredAs
from keras_vit.checkpoints.dialects.big_vision import big_vision, big_vision_scan
from keras_vit.checkpoints.dialects.facebook import facebook
from keras_vit.checkpoints.dialects.google import google, google_linen
from keras_vit.checkpoints.dialects.keras_vit import keras_vit
from keras_vit.checkpoints.dialects.torchvision import torchvision
from keras_vit.errors import CheckpointError, listed, nearest

_ALL: tuple[Dialect, ...] = (
    keras_vit,
    google,
    google_linen,
    big_vision,
    big_vision_scan,
    *_timm.FAMILIES,
    *_transformers.FAMILIES,
    *_keras_hub.FAMILIES,
    torchvision,
    facebook,
    *_open_clip.FAMILIES,
)
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
"""All dialects by name. A family other than the plain ViT is called `"library/family"`."""


def dialects_named(name: str) -> tuple[Dialect, ...]:
    """Returns the dialect of a name, or all families of a library.

    Args:
        name: a dialect such as `"google"` or `"transformers/dinov2"`; the name of a library
            such as `"transformers"` stands for all of its families.

    Raises:
        CheckpointError: the name is unknown; the message states the nearest.
    """
    if name not in tuple(DIALECTS):  # a list has no hash
        raise CheckpointError(
            f"Unknown family {name!r}.{nearest(name, DIALECTS)} Known: {listed(DIALECTS, 20)}."
        )
    return tuple(d for d in _ALL if d.name == name or d.name.startswith(f"{name}/"))


__all__ = ["DIALECTS", "Dialect", "Statement", "StoredAs", "dialects_named"]
