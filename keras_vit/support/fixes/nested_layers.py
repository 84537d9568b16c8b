"""Finds the layers inside a layer, which only a private method of Keras lists.

Symptom: `Model.layers` stops one level down, and a layer has no public list of its sublayers.

Workaround: the attributes of a layer are searched, with the lists and dicts among them.

Private names: none.
"""

from collections.abc import Iterator
from typing import Any


def all_layers(layer: Any) -> Iterator[Any]:
    """Yields a layer and every layer inside it, each once."""
    import keras

    seen: set[int] = set()

    def search(value: Any) -> Iterator[Any]:
        if id(value) in seen or not isinstance(value, (keras.Layer, list, tuple, dict)):
            return
        seen.add(id(value))
        if isinstance(value, keras.Layer):
            yield value
            value = vars(value)
        for part in list(value.values() if isinstance(value, dict) else value):
            yield from search(part)

    return search(layer)
