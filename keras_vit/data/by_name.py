"""Labelled images by a word of the command line: a folder, tfds:NAME or hf:NAME."""

import os
from typing import Any

from keras_vit.data.folders import from_folder
from keras_vit.data.huggingface import from_huggingface
from keras_vit.data.image_data import ImageData
from keras_vit.data.tfds import from_tfds
from keras_vit.errors import ConfigError


def from_name(
    name: str | os.PathLike[str], preprocessor: Any, *, split: str | None = None, **options: Any
) -> ImageData:
    """Returns the labelled images that a word stands for.

    Args:
        name: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`.
        preprocessor: a `Preprocessor` or a `VisionTransformer`.
        split: of the latter two; None for `"test"`.
        **options: of `ImageData`.

    Raises:
        ConfigError: a split of a folder, or data that cannot be had.
    """
    name = os.fspath(name)
    kind, _, inside = name.partition(":")
    if kind == "tfds":
        return from_tfds(inside, preprocessor, split=split or "test", **options)
    if kind == "hf":
        return from_huggingface(inside, preprocessor, split=split or "test", **options)
    if split is not None:
        raise ConfigError(f"{name}: a folder has no split {split!r}; name the folder of the part.")
    return from_folder(name, preprocessor, **options)
