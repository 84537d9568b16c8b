"""Reads masks and depth maps, one file for each image, when their batch is prepared."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from keras_vit.config import Task
from keras_vit.errors import ConfigError, listed
from keras_vit.images import list_images
from keras_vit.images.decoding import open_image
from keras_vit.images.resampling import Picture, Size, read_size

FORMS = {
    "segmentation": (
        "1 L P P;1 P;2 P;4 I;16B",
        "biu",
        "indices and not colours, grey or with a palette",
    ),
    "depth": ("L I;16B", "uif", "depths, grey"),
}
"""By task: Pillow's raw modes of PNG files, NumPy's kinds of arrays, and their values in words."""


@dataclasses.dataclass(frozen=True)
class Targets:
    """How the masks or depth maps of a data set are read.

    Args:
        task: `"segmentation"` or `"depth"`.
        unit: factor for depths.
        classes: segmentation, the model's class for each index in the files.
        blank: value of pixels without a target: `ignore_label`, or NaN.
        max_pixels: as for `Preprocessor`.
    """

    task: Task
    unit: float
    classes: np.ndarray
    blank: float
    max_pixels: int | None

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[Picture]:
        """Yields a target whose header is read.

        Raises:
            ConfigError: the file cannot be read, or has no indices or depths.
        """
        modes, kinds, values = FORMS[self.task]
        expected = f"expected a PNG file of {values}, or a 2-D array of them (.npy)."
        if path.endswith(".npy"):
            try:
                array = np.lib.format.open_memmap(path, mode="r")  # refuses pickled objects
            except Exception as error:  # NumPy's parser raises errors of every kind
                raise ConfigError(f"{path}: not a readable array ({error}).") from error
            if array.ndim != 2 or array.dtype.kind not in kinds:
                raise ConfigError(f"{path}: {array.dtype} of shape {array.shape}, {expected}")
            yield array
            return
        with open_image(path, self.max_pixels) as image:
            mode = image.tile[0][-1] if image.format == "PNG" else image.mode
            if image.format != "PNG" or mode not in modes.split():
                raise ConfigError(f"{path}: {image.format} of mode {mode}, {expected}")
            yield image

    def read(self, path: str) -> np.ndarray:
        """Returns a target `(height, width)`: classes of the model, int32, or depths, float32.

        Raises:
            ConfigError: as `open`; or a value is neither a class nor `blank`, or a depth is
                negative or infinite.
        """
        with self.open(path) as file:
            values, end = np.array(file), float(len(self.classes))
        if self.task == "depth":
            values, end = values.astype("float32") * np.float32(self.unit), math.inf
        wrong = ((values < 0) | (values >= end)) & (values != self.blank)
        if wrong.any():
            raise ConfigError(
                f"{path}: found {values[wrong][0]}, expected at least 0 and less than {end:g}, or "
                f"{self.blank} without a target."
            )
        if self.task == "depth":
            return values
        classes = np.append(self.classes, self.blank).astype("int32")
        return classes[np.where(values == self.blank, -1, values.astype("int64"))]

    def find(self, root: Path, images: Sequence[str], folder: Path) -> np.ndarray:
        """Returns the path of each image's target, `(images,)`, after a look at all headers.

        Raises:
            ConfigError: images and targets are not pairs, or differ in size; or as `open`.
        """
        found = list_images(folder)
        arrays = [path for path in found.others if path.endswith(".npy") and Path(path).is_file()]
        pictures, targets = _by_name(root, images), _by_name(folder, found.images + arrays)
        for kind, some, others in (("target", pictures, targets), ("image", targets, pictures)):
            if lone := [path for name, path in some.items() if name not in others]:
                raise ConfigError(
                    f"No {kind} for {listed(lone)}. Expected for each image in {root} a target in "
                    f"{folder} with the same path, except for the suffix .png or .npy."
                )
        for name, image in pictures.items():
            with self.open(targets[name]) as file:
                actual, expected = read_size(file), _read_upright_size(image, self.max_pixels)
            if expected not in (actual, None):
                raise ConfigError(
                    f"{targets[name]}: height and width {actual}, expected {expected}, the size of "
                    f"{image} after its EXIF orientation is applied."
                )
        return np.array([targets[name] for name in pictures], object)


def _by_name(folder: Path, files: Sequence[str]) -> dict[str, str]:
    """Returns files by their paths in the folder without suffix."""
    named: dict[str, str] = {}
    for file in files:
        name = os.fspath(Path(file).relative_to(folder).with_suffix(""))
        if (first := named.setdefault(name, file)) != file:
            raise ConfigError(f"{file}: expected one file with this name, also found {first}.")
    return named


def _read_upright_size(image: str, max_pixels: int | None) -> Size | None:
    """Returns (height, width) of an image by its EXIF orientation; None if it is unreadable."""
    with contextlib.suppress(ConfigError), open_image(image, max_pixels) as file:
        # The method of PNG files would decode the pixels.
        is_turned = Image.Image.getexif(file).get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
        return file.size if is_turned else (file.height, file.width)
    return None
