"""A head from outside: a `Dense` layer that was added and trained in Keras's functional way."""

from typing import Any

import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.labels import Labels
from keras_vit.layers import blank_weights


def with_head(model: Any, head: keras.layers.Dense, labels: Labels | None) -> Any:
    """Returns a copy of a model whose head has the weights of a layer; see the model's method.

    Raises:
        ConfigError: as `VisionTransformer.with_head`.
    """
    if type(head) is not keras.layers.Dense or not head.built:
        raise ConfigError(
            f"with_head takes a keras.layers.Dense that was called or built, found {head!r}. A "
            "head of other layers stays a plain keras.Model: save it as a .keras file, and prepare "
            "its images by model.preprocessor."
        )
    width = model.get_layer("pre_logits").output.shape[-1]
    if head.kernel.shape[0] != width or not model.config.is_pooled:
        raise ConfigError(
            f"The head reads vectors of width {head.kernel.shape[0]}; the pre_logits of this model "
            f"have {width} and classifier={model.config.classifier!r}. A head on the output of "
            "another layer has no place in the model."
        )
    activation = keras.activations.serialize(head.activation)
    fields = {
        "num_classes": head.units,
        "classifier_activation": None if activation == "linear" else activation,
        "labels": labels,
    }
    with blank_weights():
        copy = type(model).from_config({**model.get_config(), **fields})
    for layer in copy.layers:
        if layer.name != "head" and layer.weights:
            layer.set_weights(model.get_layer(layer.name).get_weights())
    bias = np.zeros(head.units) if head.bias is None else head.bias
    # Of two heads both get the layer: their mean is the layer at the mean of both tokens.
    heads = 2 if model.config.has_two_heads else 1
    copy.get_layer("head").set_weights([head.kernel, bias] * heads)
    return copy
