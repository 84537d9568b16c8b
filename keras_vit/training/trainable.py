"""Freezes weights, and scales the learning rates of those that stay trainable."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_vit.config.weights.lexicon import LEXICON
from keras_vit.errors import ConfigError, expect_model

if TYPE_CHECKING:
    from keras_vit.models.vision_transformer import VisionTransformer

_AFTER_BLOCKS = ("encoder_norm", "pool", "projection", "pre_logits", "head")
_LAYERS = dict.fromkeys(word.path.partition("/")[0] for word in LEXICON)
_OF_BLOCKS = tuple(layer for layer in _LAYERS if layer.endswith("_{l}"))
_EMBEDDINGS = "|".join(
    re.sub(r"{\w+}", r"\\d+", layer)
    for layer in _LAYERS
    if layer not in (*_AFTER_BLOCKS, *_OF_BLOCKS)
)
"""Layers before the blocks, as a regular expression."""


def train_only(model: keras.Model, prefixes: Sequence[str]) -> int:
    """Freezes every weight except those of the named layers; call it before `compile`.

    Keras does not save this choice: call the function again after loading a model.

    Args:
        model: a built model.
        prefixes: beginnings of weight paths, by complete names between slashes: `"block_1"`
            does not include `"block_10"`, and `"block_1/attention"` is a part of `"block_1"`.

    Returns:
        The number of trainable parameters.

    Raises:
        ConfigError: a prefix matches no weight, or `model` is not a Keras model.

    >>> import keras_vit
    >>> train_only(keras_vit.vit_ti16(image_size=32, num_classes=5), ["head"])
    965
    """
    if not isinstance(model, keras.Model):
        expect_model(model)
    paths = [weight.path for weight in model.weights]
    for prefix in prefixes:
        if not any(_is_below(path, prefix) for path in paths):
            layers = ", ".join(dict.fromkeys(path.split("/")[0] for path in paths)) or "not built"
            raise ConfigError(f"No weight's path begins with {prefix!r}; the layers are {layers}.")
    model.trainable = True  # the weights of a frozen layer would stay frozen
    for weight in model.weights:
        is_float = "float" in keras.backend.standardize_dtype(weight.dtype)  # quantised: int8
        is_chosen = any(_is_below(weight.path, p) for p in prefixes)
        is_statistic = weight.name.startswith("moving_")  # of a batch norm
        weight.trainable = is_float and is_chosen and not is_statistic
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)


def train_head(model: "VisionTransformer") -> int:
    """Freezes all weights except those of the head; returns the number of trainable parameters.

    Raises:
        ConfigError: the model has no head.
    """
    return train_only(expect_model(model), ["head"])


def train_last_blocks(model: "VisionTransformer", blocks: int) -> int:
    """Freezes all weights before the last blocks; they and all later layers stay trainable.

    Returns:
        The number of trainable parameters.

    Raises:
        ConfigError: the model has fewer blocks.
    """
    num_layers = expect_model(model).config.num_layers
    if not 0 <= blocks <= num_layers:
        raise ConfigError(
            f"blocks={blocks}: expected 0 to {num_layers}, the number of blocks of the model."
        )
    last = [
        layer.replace("{l}", str(i))
        for i in range(num_layers - blocks, num_layers)
        for layer in _OF_BLOCKS
    ]
    learning = (*last, *_AFTER_BLOCKS)
    found = [each.name for each in model.layers if each.name in learning and each.weights]
    return train_only(model, found)


def layer_decay_multipliers(model: "VisionTransformer", decay: float) -> dict[str, float]:
    """Returns the multipliers of layer-wise learning-rate decay.

    The multiplier is 1 for the layers after the blocks, `decay` for the last block, and
    `decay ** (num_layers + 1)` for the embeddings and a hybrid's stem (BEiT, arXiv 2106.08254;
    MAE, arXiv 2111.06377).

    Returns:
        `{pattern: multiplier}`, for `LayerwiseSGD` and `LayerwiseAdamW`.

    Raises:
        ConfigError: `decay` is not in (0, 1].

    >>> import keras_vit
    >>> model = keras_vit.vit_ti16(image_size=32, num_layers=2)
    >>> list(layer_decay_multipliers(model, 0.5).values())
    [0.125, 0.25, 0.5]
    """
    if not 0 < decay <= 1:
        raise ConfigError(f"layer_decay={decay!r}: expected a number in (0, 1].")
    num_layers = expect_model(model).config.num_layers
    embeddings = rf"\b({_EMBEDDINGS})/"
    names = "|".join(layer.removesuffix("_{l}") for layer in _OF_BLOCKS)
    blocks = {rf"\b({names})_{i}/": decay ** (num_layers - i) for i in range(num_layers)}
    return {embeddings: decay ** (num_layers + 1), **blocks}


def zero_head(model: "VisionTransformer") -> None:
    """Resets the head to zero, as at the start of fine-tuning (section 3.2).

    A model of `from_preset(..., num_classes=n)` has a zero head already. A dense head gets a new
    last layer, see `keras_vit.layers.DenseMap`.

    Raises:
        ConfigError: the model has no head.
    """
    if expect_model(model).config.num_classes == 0:
        raise ConfigError("num_classes=0: the model has no head; load it with num_classes=n.")
    layer = model.get_layer("head")
    if model.config.dense is not None:
        layer.reset_output()
        return
    for weight in layer.weights:
        weight.assign(keras.ops.zeros(weight.shape, weight.dtype))


def set_head_bias(model: "VisionTransformer", values: Any) -> None:
    """Sets the bias of the head, or of both heads, to one value or to one value per class."""
    for weight in model.get_layer("head").weights:
        if weight.name == "bias":
            weight.assign(np.broadcast_to(values, weight.shape))


def _is_below(path: str, prefix: str) -> bool:
    return f"{path}/".startswith(f"{prefix.rstrip('/')}/")
