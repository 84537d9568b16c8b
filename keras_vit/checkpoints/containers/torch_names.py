"""The files of transformers' TensorFlow and Flax classes under the names of its torch classes.

Their modules have the names of torch's. Kernels are stored with their axes in another order.
"""

import re

from keras_vit.checkpoints.containers.reading import Reader, transposed

_NUMBERED = re.compile(r"/layers?(?:_\._|/)\d+/")
"""A block, as TensorFlow's classes and as Flax's spell its number; no other library does."""
_SCOPE = re.compile(r"^([^/]+)/[^/]+/(?=\1/)")
"""A layer of the model as Keras's group, and the name of the model."""
_WORDS = {
    **dict.fromkeys(("kernel", "gamma", "scale", "embedding", "embeddings"), "weight"),
    "beta": "bias",
}
_AXES = {2: (1, 0), 4: (3, 2, 0, 1)}
"""Axes of a kernel in torch's order, by their number: dense, convolution."""


def in_torch_names(reader: Reader) -> Reader:
    """Returns a reader of the same arrays in torch's names and axes; other files are unchanged."""
    if not any(map(_NUMBERED.search, reader.shapes)):
        return reader
    places = []
    for stored, shape in reader.shapes.items():
        name = _SCOPE.sub("", stored.removesuffix(":0")).replace("_._", "/")
        *modules, word = name.split("/")
        axes = _AXES.get(len(shape)) if word == "kernel" else None
        places.append((".".join((*modules, _WORDS.get(word, word))), stored, axes))
    return transposed(reader, places)
