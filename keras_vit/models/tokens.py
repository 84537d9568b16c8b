"""The tokens of stages by kind, a vector for every patch (dense features)."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from keras_vit.config.pool import STAGE_POOLINGS
from keras_vit.config.rules import Values
from keras_vit.errors import listed
from keras_vit.models.inference import run

Names: TypeAlias = list[str] | tuple[str, ...]
"""Several names of stages: a `Sequence[str]` could be one name, for type checkers."""


class Tokens(NamedTuple):
    """The tokens of a stage as float32 arrays; None for tokens that the model lacks.

    Args:
        class_token: `(batch, hidden_size)`; several `(batch, class tokens, hidden_size)`; or
            None.
        distillation_token: `(batch, hidden_size)`, or None.
        registers: `(batch, registers, hidden_size)`, or None.
        patches: `(batch, rows, columns, hidden_size)`.
    """

    class_token: np.ndarray | None
    distillation_token: np.ndarray | None
    registers: np.ndarray | None
    patches: np.ndarray


def compute_tokens(
    model: Any, images: Any, stages: str | Names | None, batch_size: int
) -> Tokens | dict[str, Tokens]:
    """Returns the tokens of stages; `VisionTransformer.tokens` states arguments and result."""
    model.config.refuse_packed("tokens()")
    if stages is None:
        stages = f"block_{model.config.num_layers - 1}/norm"
    every = model._graph.stage_names()
    chosen = np.ravel(stages).tolist()
    check_stages(chosen, [name for name in every if f"{name}/gap" in every])
    values = run(model, images, chosen, batch_size)
    grid = compute_grid(model, images)
    tokens = {name: _split(values[name], model, grid) for name in chosen}
    return tokens if np.ndim(stages) else tokens[chosen[0]]


def check_stages(names: Sequence[Any], valid: Sequence[str]) -> None:
    """Refuses names of stages that are not valid; the valid ones are in the order of the model.

    Raises:
        ConfigError: a name is not valid.
    """
    for name in names:
        Values(valid.__contains__, listed(valid, 3), tuple(valid)).check("stage", name)


def choose_stage(model: Any, stage: str | None = None, pooling: str | None = None) -> str:
    """Returns the name of a stage of a model, or of the vector that a pooling makes of it.

    Args:
        model: a `VisionTransformer`.
        stage: name of a stage, see `keras_vit.models.stages.Stages`. None for `"pre_logits"`, the
            input of the head; with a pooling, for the tokens after the last norm.
        pooling: `"token"` for the class token, `"gap"` for the mean of the patches, or
            `"token_and_mean"` for both side by side. None for the stage itself.

    Raises:
        ConfigError: the model has no such stage; or a pooling of this kind, or of this stage.
    """
    STAGE_POOLINGS.check("pooling", pooling)
    if stage is None and pooling is None:
        model.config.refuse_map("The vector of an image")
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


def _split(tokens: np.ndarray, model: Any, grid: tuple[int, int]) -> Tokens:
    config, kinds = model.config, model.config.tokens
    prefix, count = config.num_prefix_tokens, kinds.class_tokens
    class_tokens = tokens[:, 0] if count == 1 else tokens[:, :count]
    return Tokens(
        class_tokens if count else None,
        tokens[:, 1] if kinds.distillation else None,
        tokens[:, kinds.num_before_registers : prefix] if kinds.registers else None,
        tokens[:, prefix:].reshape(len(tokens), *grid, -1),
    )
