"""Saves and restores which layers of a model are quantised.

Keras quantises in place: `model.quantize("int8")` replaces kernels inside blocks, and the
constructor arguments of the model and of its blocks do not record it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_vit.support.fixes.nested_layers import all_layers

Parts = Mapping[str, Mapping[str, Any]]


def quantised_parts(layers: list[Any]) -> dict[str, dict[str, Any]]:
    """Returns mode and configuration of every quantised layer in `layers`, by its path."""
    return {
        path: {
            "mode": part.quantization_mode,
            "config": keras.saving.serialize_keras_object(part.quantization_config),
        }
        for path, part in parts_with_kernels(layers)
        if part.quantization_mode is not None
    }


def quantise_parts(layers: list[Any], parts: Parts) -> None:
    """Quantises the parts of built `layers` that `quantised_parts` has returned."""
    by_path = dict(parts_with_kernels(layers))
    for path, quantised in parts.items():
        config = keras.saving.deserialize_keras_object(quantised["config"])
        by_path[path].quantize(quantised["mode"], config=config)


def parts_with_kernels(layers: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yields path and layer of each layer that can be quantised or adapted with LoRA."""
    for layer in layers:
        for part in all_layers(layer):
            if isinstance(part, (keras.layers.Dense, keras.layers.EinsumDense)):
                # The path starts at the layer, not at the model that contains it.
                inside = part is not layer and part.path[part.path.index(f"{layer.name}/") :]
                yield inside or layer.name, part
