"""Training data from arrays of images and labels."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from keras_vit.data.image_data import ImageData, Options, Prepares
from keras_vit.data.records import Records, classes_of
from keras_vit.errors import ConfigError
from keras_vit.images.inputs import PixelImages, as_array


def from_arrays(
    images: Any,
    labels: Any,
    preprocessor: Prepares,
    batch_size: int = 32,
    *,
    class_names: Sequence[str] | None = None,
    **options: Unpack[Options],
) -> ImageData:
    """Returns the data set of images in memory.

    Args:
        images: pixels in [0, 255] or [0, 1], `(images, height, width, channels)`,
            `(images, channels, height, width)` or `(images, height, width)`; or a sequence of
            arrays, PIL images or paths. `docs/preprocessing.md` states how a shape is understood.
        labels: integers or words `(images,)`; or, for many labels per image (multi-label), zeros
            and ones `(images, classes)`.
        preprocessor: a `keras_vit.Preprocessor`, or a `VisionTransformer`.
        batch_size: images per batch.
        class_names: one name per class; None takes the labels of the model, or, if it has no
            labels, the numbers of the classes or the sorted words.
        **options: optional arguments of `ImageData`.

    Raises:
        ConfigError: as `ImageData`; or the array has another number of axes than images have.

    >>> import numpy as np
    >>> from keras_vit import Preprocessor
    >>> from keras_vit.data import from_arrays
    >>> images, labels = np.zeros((10, 8, 8), "uint8"), np.arange(10) % 2
    >>> data = from_arrays(images, labels, Preprocessor(8, channels=1))
    >>> train, validation = data.hold_out(0.2)
    >>> validation.class_counts
    {'0': 1, '1': 1}
    """
    if hasattr(images, "__array__"):
        images = as_array(images)
        if images.ndim not in (3, 4):
            raise ConfigError(
                f"images has shape {images.shape}, expected (images, height, width, channels)."
            )
        images = images[..., None] if images.ndim == 3 else images
        prepared = getattr(preprocessor, "preprocessor", preprocessor)
        images = PixelImages(images, getattr(prepared, "channels", 3))
    values, names = classes_of(np.asarray(labels), class_names, preprocessor, "arrays")
    return ImageData(Records("arrays", images, values, names), preprocessor, batch_size, **options)
