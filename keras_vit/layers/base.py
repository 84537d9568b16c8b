"""The base class of all layers, which derives the config from the constructor's signature."""

import inspect
from typing import Any

import keras

from keras_vit.config.fields import Fields
from keras_vit.layers.quantisation import quantise_parts, quantised_parts


class ConfiguredLayer(keras.layers.Layer):
    """A layer that derives its config from the attributes named like its constructor arguments.

    Keras itself derives a config only if all arguments are plain JSON types, which a dtype
    policy object is not.
    """

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments; `from_config` is its inverse."""
        arguments: dict[str, Any] = {}
        for cls in type(self).__mro__:
            if cls is ConfiguredLayer:
                break
            constructor = vars(cls).get("__init__")
            if constructor is None:
                continue
            for name, parameter in inspect.signature(constructor).parameters.items():
                is_rest = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
                if name != "self" and not is_rest:
                    value = getattr(self, name)
                    arguments[name] = value.to_dict() if isinstance(value, Fields) else value
        return {**super().get_config(), **arguments}

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the first input; layers with another output shape override this."""
        return input_shape

    def get_build_config(self) -> dict[str, Any] | None:
        """Returns the shapes that the layer was built with, and its quantised sublayers.

        `build_from_config` is its inverse.
        """
        config, parts = super().get_build_config(), quantised_parts([self])
        return {**config, "quantised": parts} if config and parts else config

    def build_from_config(self, config: dict[str, Any]) -> None:
        shapes = {key: value for key, value in config.items() if key != "quantised"}
        super().build_from_config(shapes)
        quantise_parts([self], config.get("quantised", {}))
