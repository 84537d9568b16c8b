"""Reads the files of transformers' TensorFlow classes under the names of its PyTorch classes.

The modules have the same names in both. Kernels have their axes in another order.
"""

import re

from keras_vit.checkpoints.containers.reading import Reader, transposed

_BLOCK = "_._"
"""Separates a list of layers from the index of a layer; no other library has it in its names."""
_SCOPE = re.compile(r"^([^/]+)/[^/]+/(?=\1/)")
"""Prefix of names: the group of a layer in Keras, and the name of the model."""
_WORDS = {"kernel": "weight", "gamma": "weight", "embeddings": "weight", "beta": "bias"}
_AXES = {2: (1, 0), 4: (3, 2, 0, 1)}
"""Axes of a kernel in torch's order, by rank: dense, convolution."""


def in_torch_names(reader: Reader) -> Reader:
    """Returns a reader with torch's names and axes, or the same reader for other files."""
    if not any(_BLOCK in name for name in reader.shapes):
        return reader
    places = []
    for stored, shape in reader.shapes.items():
        name = _SCOPE.sub("", stored.removesuffix(":0")).replace(_BLOCK, "/")
        *modules, word = name.split("/")
        axes = _AXES.get(len(shape)) if word == "kernel" else None
        places.append((".".join((*modules, _WORDS.get(word, word))), stored, axes))
    return transposed(reader, places)
