"""Features and labels of any number of images on a Ray cluster; `keras-vit[ray]`.

`Embed` and `Classify` are classes for `map_batches` of Ray Data. `write_dataset`, the command
`keras-vit embed --engine ray`, goes on where it stopped after a worker or the process has died.
"""

from keras_vit.ray.models import Classify, Embed
from keras_vit.ray.run import Written, write_dataset

__all__ = ["Classify", "Embed", "Written", "write_dataset"]
