"""Features and labels of any number of images on a Ray cluster; `keras-vit-zoo[ray]`.

`Embed` and `Classify` are classes for `map_batches` of Ray Data. `examples/ray/write_features.py`
writes the features of a folder of images, and goes on where it stopped.
"""

from keras_vit.ray.models import Classify, Embed

__all__ = ["Classify", "Embed"]
__dir__ = __all__.copy
