"""Writes segmentation and depth maps as files, for `keras-vit predict --path`."""

# ruff: noqa: PTH100

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from keras_vit.errors import ConfigError
from keras_vit.images.preprocessor import Preprocessor
from keras_vit.images.protocols import complete
from keras_vit.images.resampling import Size, read_size, resize_bilinear
from keras_vit.support.files import new_file, replace_file

_WHOLE = {"crop_pct": 1.0, "crop_mode": "squash", "crop_to_aspect_ratio": False}
"""Parameters of protocols by which the image is resized without a crop."""


def place_maps(images: Sequence[Path], folder: Path) -> dict[Path, Path]:
    """Returns the path of each image's map, `NAME.png`.

    Its path below `folder` is that of the image below the common folder of all images.

    Raises:
        ConfigError: `NAME.png` or `NAME.npy` exists, or two images differ only in their suffixes.
        WriteError: the system refuses to write there.
    """
    common = os.path.commonpath([os.path.abspath(image.parent) for image in images])
    names = [Path(os.path.relpath(image, common)).with_suffix(".png") for image in images]
    places = [folder / name for name in names]
    (first, count), *_ = Counter(places).most_common(1)
    if count > 1:
        raise ConfigError(f"{first}: {count} images have their map at this path; rename one.")
    for place in places:
        for suffix in (".png", ".npy"):
            new_file(place.with_suffix(suffix), suffix)
    return dict(zip(images, places, strict=True))


def write_maps(
    model: Any, places: dict[Path, Path], skip: Callable[[Path, ConfigError], None]
) -> Iterator[tuple[Path, Path]]:
    """Writes a map of the size of each image; yields the image and the path of its map.

    Args:
        model: a `VisionTransformer` with a dense head.
        places: the result of `place_maps`.
        skip: called with an image that cannot be read, and the reason.

    Raises:
        ConfigError: the images do not fit the model, or its outputs are not finite.
        WriteError: a file cannot be written.
    """
    from keras_vit.evaluation.extraction import finite
    from keras_vit.models.inference import run

    preprocessor = _without_crop(model.preprocessor)
    # One image at a time: a batch of maps of many classes would take gigabytes.
    for image, place in places.items():
        try:
            picture = preprocessor.decode(image)
            pixels = preprocessor.scale(preprocessor.resize(picture))
        except ConfigError as error:
            skip(image, error)
            continue
        values, size = run(model, preprocessor.stack([pixels])), read_size(picture)
        values = finite(values[0], "float32")
        if model.config.dense.is_segmentation:
            picture = Image.fromarray(_choose_classes(values, size))
            if picture.mode == "L":
                picture.putpalette(_palette())
        else:
            depths = resize_bilinear(values[..., None], size)[..., 0]
            values_file = place.with_suffix(".npy")
            with replace_file(values_file) as temporary, temporary.open("wb") as file:
                np.save(file, depths)
            greys = np.interp(depths, (depths.min(), depths.max()), (0, 255))
            picture = Image.fromarray(greys.astype("uint8"))
        with replace_file(place) as temporary:
            picture.save(temporary, "png")
        yield image, place


def _without_crop(preprocessor: Preprocessor) -> Preprocessor:
    """Returns a preprocessor that squashes the image, so that the map covers the whole image."""
    own = complete(preprocessor.protocol)
    if own["name"] == "big_vision":  # it always crops
        own = {"name": "paper", "mean": own["mean"], "std": own["std"]}
    whole = {key: _WHOLE.get(key, value) for key, value in own.items()}
    return dataclasses.replace(preprocessor, protocol=whole)


def _choose_classes(scores: np.ndarray, size: Size) -> np.ndarray:
    """Returns the class of every pixel of an image of this size, uint8 or uint16.

    Classes are resized one by one, because all scores of a photograph would take gigabytes.
    """
    best = np.full(size, -np.inf, "float32")
    classes = np.zeros(size, "uint8" if scores.shape[-1] <= 256 else "uint16")
    for k in range(scores.shape[-1]):
        own = resize_bilinear(scores[..., k : k + 1], size)[..., 0]
        classes[own > best] = k
        best = np.maximum(best, own)
    return classes


def _palette() -> bytes:
    """Returns PASCAL VOC's 256 colours: the lowest three bits of an index are the highest bits of
    red, green and blue, and so on."""
    bits = np.arange(256)[:, None] >> np.arange(9) & 1
    values = (bits.reshape(256, 3, 3) * [[128], [64], [32]]).sum(axis=1)
    return values.astype("uint8").tobytes()
