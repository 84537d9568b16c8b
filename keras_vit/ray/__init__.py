"""Features and labels of any number of images on a Ray cluster; `keras-vit[ray]`.

`Embed` and `Classify` are classes for `map_batches` of Ray Data. `write_dataset` is a run that
survives the death of workers and of its own process: the command `keras-vit embed --engine ray`.
"""

from keras_vit.ray.models import Classify, Embed
from keras_vit.ray.run import Written, write_dataset

__all__ = ["Classify", "Embed", "Written", "write_dataset"]
