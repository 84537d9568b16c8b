"""Feature extraction: the tokens of a model's stages, with one vector per patch."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from keras_vit.config.pool import STAGE_POOLINGS
from keras_vit.config.rules import Values
from keras_vit.errors import listed
from keras_vit.models.inference import run

Names: TypeAlias = list[str] | tuple[str, ...]
"""Several names of stages; for type checkers, a `Sequence[str]` could be a single string."""


class Tokens(NamedTuple):
    """The tokens of a stage as float32 arrays; None for tokens that the model does not have.

    Args:
        class_token: `(batch, hidden_size)`; with several, `(batch, class tokens, hidden_size)`; or
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
    """Computes the tokens of stages; see `VisionTransformer.tokens`."""
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
    """Checks that names of stages are among the valid names.

    Raises:
        ConfigError: a name is not valid.
    """
    for name in names:
        Values(valid.__contains__, listed(valid, 3), tuple(valid)).check("stage", name)


def choose_stage(model: Any, stage: str | None = None, pooling: str | None = None) -> str:
    """Returns the name of a stage, or of the vector that a pooling computes from it.

    Args:
        model: a `VisionTransformer`.
        stage: name of a stage, see `keras_vit.models.stages.Stages`. None for `"pre_logits"`, the
            input of the head, or, with a pooling, the tokens after the last norm.
        pooling: `"token"` for the class token, `"gap"` for the mean of the patches, or
            `"token_and_mean"` for both concatenated. None for the stage itself.

    Raises:
        ConfigError: the model has no such stage, or no such pooling of it.
    """
    STAGE_POOLINGS.check("pooling", pooling)
    if stage is None and pooling is None:
        model.config.refuse_map("Feature extraction")
    if pooling is None:
        name = "pre_logits" if stage is None else stage
    else:
        tokens = f"block_{model.config.num_layers - 1}/norm" if stage is None else stage
        name = f"{tokens}/{pooling}"
    model._check_stages([name])
    return name


def compute_grid(model: Any, images: Any) -> tuple[int, int]:
    """Returns the rows and columns of patches of a prepared batch."""
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
