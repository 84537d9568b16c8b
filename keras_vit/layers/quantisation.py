"""Which parts of a model are quantised, as plain JSON, so that a saved one can be built again.

Keras quantises in place: `model.quantize("int8")` replaces kernels inside blocks, of which the
arguments of the model and of its blocks say nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_vit.keras_fixes.keras_internals import all_layers

Parts = Mapping[str, Mapping[str, Any]]


def quantised_parts(layers: list[Any]) -> dict[str, dict[str, Any]]:
    """Returns mode and configuration of every quantised layer in `layers`, by its path."""
    return {
        path: {
            "mode": part.quantization_mode,
            "config": keras.saving.serialize_keras_object(part.quantization_config),
        }
        for path, part in _parts(layers)
        if part.quantization_mode is not None
    }


def quantise_parts(layers: list[Any], parts: Parts) -> None:
    """Quantises the parts of built `layers` that `quantised_parts` told."""
    found = dict(_parts(layers))
    for path, quantised in parts.items():
        config = keras.saving.deserialize_keras_object(quantised["config"])
        found[path].quantize(quantised["mode"], config=config)


def _parts(layers: list[Any]) -> Iterator[tuple[str, Any]]:
    """Layers that Keras can quantise, by their path from the given ones."""
    for layer in layers:
        for part in all_layers(layer):
            if isinstance(part, (keras.layers.Dense, keras.layers.EinsumDense)):
                # Independent of what the layer is nested in.
                inside = part is not layer and part.path[part.path.index(f"{layer.name}/") :]
                yield inside or layer.name, part
