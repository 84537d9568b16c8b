"""Embeds and classifies any number of images on a Ray cluster; needs `keras-vit-zoo[ray]`.

`Embed` and `Classify` are classes for `map_batches` of Ray Data. `examples/ray/write_features.py`
writes the features of a folder of images, and resumes after an interruption.
"""

from keras_vit.ray.models import Classify, Embed

__all__ = ["Classify", "Embed"]
__dir__ = __all__.copy
