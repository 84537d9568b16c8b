"""Labelled images for `fit` and `evaluate`: folders, arrays, TFDS and Hugging Face data sets.

Every `from_*` function returns an `ImageData`. A batch depends only on the seed, the epoch and the
index of the batch, and is the same on every backend.
"""

from keras_vit.config.views import Views
from keras_vit.data.arrays import from_arrays, from_grain
from keras_vit.data.augmentation import AUGREG, Augmentation
from keras_vit.data.example import example_image
from keras_vit.data.folders import from_folder
from keras_vit.data.huggingface import from_huggingface
from keras_vit.data.image_data import ImageData
from keras_vit.data.image_source import ImageSource
from keras_vit.data.tfds import from_tfds

__all__ = [
    "AUGREG",
    "Augmentation",
    "ImageData",
    "ImageSource",
    "Views",
    "example_image",
    "from_arrays",
    "from_folder",
    "from_grain",
    "from_huggingface",
    "from_tfds",
]
__dir__ = __all__.copy
