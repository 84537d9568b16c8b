"""The files of transformers' TensorFlow classes under the names of its torch classes.

Their modules have the names of torch's. Kernels are stored with their axes in another order.
"""

import re

from keras_vit.checkpoints.containers.reading import Reader, transposed

_BLOCK = "_._"
"""Stands between a list of layers and the number of one; no other library has it in its names."""
_SCOPE = re.compile(r"^([^/]+)/[^/]+/(?=\1/)")
"""A layer of the model as Keras's group, and the name of the model."""
_WORDS = {"kernel": "weight", "gamma": "weight", "embeddings": "weight", "beta": "bias"}
_AXES = {2: (1, 0), 4: (3, 2, 0, 1)}
"""Axes of a kernel in torch's order, by their number: dense, convolution."""


def in_torch_names(reader: Reader) -> Reader:
    """Returns a reader of the same arrays in torch's names and axes; other files are unchanged."""
    if not any(_BLOCK in name for name in reader.shapes):
        return reader
    places = []
    for stored, shape in reader.shapes.items():
        name = _SCOPE.sub("", stored.removesuffix(":0")).replace(_BLOCK, "/")
        *modules, word = name.split("/")
        axes = _AXES.get(len(shape)) if word == "kernel" else None
        places.append((".".join((*modules, _WORDS.get(word, word))), stored, axes))
    return transposed(reader, places)
