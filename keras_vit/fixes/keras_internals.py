"""A private name of Keras that has no public counterpart, found 2026-11 in Keras 3.15.1."""

from collections.abc import Iterator
from typing import Any


def all_layers(layer: Any) -> Iterator[Any]:
    """Yields a layer and every layer inside it. `Model.layers` stops one level down."""
    return layer._flatten_layers()
