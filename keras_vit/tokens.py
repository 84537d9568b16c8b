"""The tokens of chosen blocks: dense features, a vector for every patch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.keras_fixes import FixedModel

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer

_SLICES: WeakKeyDictionary[keras.Model, dict[Any, Any]] = WeakKeyDictionary()
"""Models that end at blocks, kept as long as the whole model: a new one would compile again."""


class Tokens(NamedTuple):
    """The output of a block as float32 arrays; None for tokens that the model lacks.

    Args:
        class_token: `(batch, hidden_size)`, or None.
        distillation_token: `(batch, hidden_size)`, or None.
        registers: `(batch, num_registers, hidden_size)`, or None.
        patches: `(batch, rows, columns, hidden_size)`.
    """

    class_token: np.ndarray | None
    distillation_token: np.ndarray | None
    registers: np.ndarray | None
    patches: np.ndarray


def tokens_of(
    model: "VisionTransformer",
    images: Any,
    blocks: int | Sequence[int],
    norm: bool,
    batch_size: int,
) -> Tokens | dict[int, Tokens]:
    """Returns the tokens of blocks; `VisionTransformer.tokens` states arguments and result."""
    several = [blocks] if isinstance(blocks, int) else list(blocks)
    chosen = [block_index(model, block) for block in several]
    axes = (1, 2) if model.data_format == "channels_last" else (2, 3)
    height, width = (images.shape[axis] for axis in axes)
    grid = model.config.grid_of((height, width))
    part = _up_to_blocks(model, tuple(dict.fromkeys(chosen)), norm)
    outputs = part.predict(images, batch_size=batch_size, verbose=0)
    found = {block: _split(outputs[str(block)], model, grid) for block in chosen}
    return found[chosen[0]] if isinstance(blocks, int) else found


def block_index(model: "VisionTransformer", block: int) -> int:
    """Returns the index of a block from the first; a negative index counts from the end.

    Raises:
        ConfigError: the model has no such block.
    """
    num_layers = model.config.num_layers
    if not -num_layers <= block < num_layers:
        raise ConfigError(f"blocks: there is no block {block}; the model has {num_layers}.")
    return block % num_layers


def _up_to_blocks(model: "VisionTransformer", blocks: tuple[int, ...], norm: bool) -> Any:
    variables = [id(variable) for variable in model.variables]
    kept = _SLICES.setdefault(model, {})
    # LoRA and quantisation replace variables that a compiled function refers to.
    if (blocks, norm) not in kept or kept[blocks, norm][1] != variables:
        outputs = {str(block): model.get_layer(f"block_{block}").output for block in blocks}
        config = model.config
        if norm and config.final_norm and not config.numerics.pool_before_norm:
            last = model.get_layer("encoder_norm")
            outputs = {block: last(tokens) for block, tokens in outputs.items()}
        kept[blocks, norm] = FixedModel(model.input, outputs), variables
    return kept[blocks, norm][0]


def _split(tokens: np.ndarray, model: "VisionTransformer", grid: tuple[int, int]) -> Tokens:
    config = model.config
    tokens = np.asarray(tokens, "float32")
    patches = tokens[:, config.num_prefix_tokens :]
    registers = tokens[
        :, config.num_prefix_tokens - config.num_registers : config.num_prefix_tokens
    ]
    return Tokens(
        tokens[:, 0] if config.has_class_token else None,
        tokens[:, 1] if config.distillation_token else None,
        registers if config.num_registers else None,
        patches.reshape(len(patches), *grid, -1),
    )
