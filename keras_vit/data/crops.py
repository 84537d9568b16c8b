"""The random crop of Inception and the flip, on Pillow images, arrays and targets.

`vit_jax/input_pipeline.py` crops with `tf.image.sample_distorted_bounding_box` and resizes
with `tf.image.resize`: half-pixel bilinear, without antialias.
"""

from collections.abc import Iterable

import numpy as np
from PIL import Image

from keras_vit.images.geometry import Axis
from keras_vit.images.resampling import Size, resize_bilinear

_ATTEMPTS = 100


def random_box(
    size: Size, area: tuple[float, float], aspect: tuple[float, float], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Returns (top, left, height, width) of a random part of an image.

    The ratio width / height is uniform in `aspect`, and the height is uniform among the heights
    that fit and give an area in range, as in TensorFlow's `GenerateRandomCrop`. If rounding
    carries the area out of the range, the box grows or shrinks by one row. After 100 attempts
    without a fitting box, the box is the whole image.

    Args:
        size: (height, width) of the image.
        area: smallest and largest fraction of the image's area.
        aspect: smallest and largest width / height.
        rng: draws ratio, height and place.
    """
    height, width = size
    least, most = (share * height * width for share in area)
    for _ in range(_ATTEMPTS):
        ratio = rng.uniform(*aspect)
        low = round(np.sqrt(least / ratio))
        high = min(round(np.sqrt(most / ratio)), int((width + 0.5) / ratio), height)
        rows = int(rng.integers(low, high + 1)) if low < high else high
        columns = round(rows * ratio)
        if rows * columns < least:
            rows += 1
            columns = round(rows * ratio)
        if rows * columns > most:
            rows -= 1
            columns = round(rows * ratio)
        fits = 0 < rows <= height and 0 < columns <= width
        if fits and least <= rows * columns <= most:
            top, left = rng.integers(height - rows + 1), rng.integers(width - columns + 1)
            return int(top), int(left), rows, columns
    return 0, 0, height, width


def crop_and_resize(
    image: Image.Image | np.ndarray, box: tuple[int, int, int, int], size: Size
) -> Image.Image | np.ndarray:
    """Returns a part of an image at another size, bilinear without antialias.

    Values of 8-bit images are cut to whole numbers, as in big_vision; values of float arrays keep
    their fractions. A target `(height, width)` gets the nearest neighbours, see `resample`.
    """
    top, left, height, width = box
    if isinstance(image, Image.Image) and image.mode == "RGBA":
        image = np.asarray(image)  # Pillow would weight the colours by the fourth channel
    if isinstance(image, np.ndarray):
        part = image[top : top + height, left : left + width]
        if part.ndim == 2:
            return resample(part, map(Axis, (0, 0), part.shape, size, (0, 0), size))
        return resize_bilinear(part, size).astype(image.dtype, copy=False)
    # Cut first: interpolation must not look beyond the box.
    part = image.crop((left, top, left + width, top + height))
    extent = (0, 0, width, height)
    to = (size[1], size[0])
    return part.transform(to, Image.Transform.EXTENT, extent, Image.Resampling.BILINEAR)


def resample(target: np.ndarray, axes: Iterable[Axis]) -> np.ndarray:
    """Returns a part of a target at another size: nearest neighbour, half-pixel centres.

    >>> import numpy as np
    >>> from keras_vit.data.crops import resample
    >>> from keras_vit.images.geometry import Axis
    >>> resample(np.array([[1, 2, 3, 4]]), [Axis(0, 1, 1, 0, 1), Axis(0, 4, 2, 0, 2)])
    array([[2, 4]])
    """
    places = list[np.ndarray]()
    for axis in axes:
        twice = 2 * (int(axis.begin) + np.arange(axis.length)) + 1  # whole numbers are exact
        places.append(int(axis.first) + twice * int(axis.source) // (2 * int(axis.target)))
    return target[np.ix_(*places)]


def flip(image: Image.Image | np.ndarray) -> Image.Image | np.ndarray:
    """Returns the image mirrored left to right."""
    if isinstance(image, np.ndarray):
        return image[:, ::-1]
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
