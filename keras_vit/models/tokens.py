"""The output tokens of chosen blocks, a vector for every patch (dense features)."""

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.config.vit_rules import STAGE_POOLINGS
from keras_vit.errors import ConfigError
from keras_vit.models.inference import run


class Tokens(NamedTuple):
    """The output of a block as float32 arrays; None for tokens that the model lacks.

    Args:
        class_token: `(batch, hidden_size)`; several `(batch, num_class_tokens, hidden_size)`; or
            None.
        distillation_token: `(batch, hidden_size)`, or None.
        registers: `(batch, num_registers, hidden_size)`, or None.
        patches: `(batch, rows, columns, hidden_size)`.
    """

    class_token: np.ndarray | None
    distillation_token: np.ndarray | None
    registers: np.ndarray | None
    patches: np.ndarray


def compute_tokens(
    model: Any,
    images: Any,
    blocks: int | Sequence[int],
    norm: bool,
    batch_size: int,
) -> Tokens | dict[int, Tokens]:
    """Returns the tokens of blocks; `VisionTransformer.tokens` states arguments and result."""
    model.config.refuse_packed("tokens()")
    chosen = [block_index(model, block) for block in np.ravel(blocks).tolist()]
    kind = "/norm" if norm else ""
    stages = [f"block_{block}{kind}" for block in chosen]
    values = run(model, images, stages, batch_size)
    grid = compute_grid(model, images)
    tokens = {
        block: _split(values[stage], model, grid)
        for block, stage in zip(chosen, stages, strict=True)
    }
    return tokens if np.ndim(blocks) else tokens[chosen[0]]


def choose_stage(model: Any, stage: str | None = None, pooling: str | None = None) -> str:
    """Returns the name of a stage of a model, or of the vector that a pooling makes of it.

    Args:
        model: a `VisionTransformer`.
        stage: name of a stage, see `keras_vit.models.graph.Stages`. None for `"pre_logits"`, the
            input of the head; with a pooling, for the tokens behind the last norm.
        pooling: `"token"` for the class token, `"gap"` for the mean of the patches, which leaves
            registers out, or `"token_and_mean"` for both beside each other. None for the stage
            itself.

    Raises:
        ConfigError: the model has no such stage; or a pooling of this kind, or of this stage.
    """
    STAGE_POOLINGS.check("pooling", pooling)
    if pooling is None:
        name = "pre_logits" if stage is None else stage
    else:
        tokens = f"block_{model.config.num_layers - 1}/norm" if stage is None else stage
        name = f"{tokens}/{pooling}"
    model._check_stages([name])
    return name


def compute_grid(model: Any, images: Any) -> tuple[int, int]:
    """Returns rows and columns of the patches of a prepared batch."""
    height, width = (np.shape(images)[axis] for axis in image_axes(model))
    return model.config.compute_grid((height, width))


def image_axes(model: Any) -> tuple[int, int]:
    """Returns the axes of height and width in a batch of images."""
    return (1, 2) if model.data_format == "channels_last" else (2, 3)


def block_index(model: Any, block: int) -> int:
    """Returns the index of a block from the first; a negative index counts from the end.

    Raises:
        ConfigError: the model has no such block.
    """
    num_layers = model.config.num_layers
    if not (isinstance(block, numbers.Integral) and -num_layers <= int(block) < num_layers):
        raise ConfigError(f"blocks: there is no block {block!r}; the model has {num_layers}.")
    return int(block) % num_layers


def _split(tokens: np.ndarray, model: Any, grid: tuple[int, int]) -> Tokens:
    config = model.config
    patches = tokens[:, config.num_prefix_tokens :]
    registers = tokens[
        :, config.num_prefix_tokens - config.num_registers : config.num_prefix_tokens
    ]
    class_tokens = (
        tokens[:, : config.num_class_tokens] if config.num_class_tokens > 1 else tokens[:, 0]
    )
    return Tokens(
        class_tokens if config.has_class_token else None,
        tokens[:, 1] if config.distillation_token else None,
        registers if config.num_registers else None,
        patches.reshape(len(patches), *grid, -1),
    )
