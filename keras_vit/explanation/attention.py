"""Explanations of a prediction: attention weights of chosen blocks, and attention rollout."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.inference import run
from keras_vit.model import VisionTransformer
from keras_vit.tokens import block_index


def attention_maps(
    model: VisionTransformer,
    images: Any,
    blocks: Sequence[int] | None = None,
    batch_size: int = 32,
) -> dict[int, np.ndarray]:
    """Returns the softmax weights of chosen blocks (Eq. 6).

    The chosen blocks form their weights, which the backend's fused attention does not.

    Args:
        model: a `VisionTransformer`.
        images: a float batch in the model's size and range, see `model.preprocessor`.
        blocks: indices of blocks, negative indices from the end; None for all.
        batch_size: images per step.

    Returns:
        `{block: float32 (batch, heads, tokens, tokens)}`, blocks in the order of the model;
        each row sums to 1.

    Raises:
        ConfigError: the model has no such block.
    """
    blocks = range(model.config.num_layers) if blocks is None else blocks
    chosen = sorted({block_index(model, block) for block in blocks})
    stages = {block: f"block_{block}/attention" for block in chosen}
    maps = run(model, images, list(stages.values()), batch_size)
    return {block: maps[stage] for block, stage in stages.items()}


def attention_rollout(
    maps: Mapping[int, np.ndarray],
    grid: tuple[int, int],
    class_token: bool = True,
    reads: np.ndarray | None = None,
) -> np.ndarray:
    """Returns how much each patch contributes to the prediction (Abnar and Zuidema 2020; Figure 6).

    The mean of the heads is mixed half and half with the
    identity for the residual connection; the matrices of all blocks are multiplied. Tokens before
    the patches, a class token or registers, take part in the product and are left out of the
    result.

    Args:
        maps: result of `attention_maps`, for all blocks or the last blocks.
        grid: the patch grid, `model.config.grid`.
        class_token: True if the prediction reads the first token, False if it reads the mean
            of the patches.
        reads: result of `read_tokens`, for any other pooling: the share of each token,
            `(tokens,)` or `(batch, tokens)`. None uses `class_token`.

    Returns:
        The contributions, float32 `(batch, rows, columns)`; each image sums to 1.

    """
    rollout: Any = None
    for block in sorted(maps):
        weights = maps[block].mean(axis=1)  # (batch, tokens, tokens)
        weights = weights + np.eye(weights.shape[-1], dtype=weights.dtype)
        weights = weights / weights.sum(axis=-1, keepdims=True)
        rollout = weights if rollout is None else weights @ rollout
    before = rollout.shape[-1] - grid[0] * grid[1]
    if reads is not None:
        shares = np.broadcast_to(np.asarray(reads, "float32"), rollout.shape[:2])
        read = np.einsum("bt,btp->bp", shares, rollout)
    else:
        read = rollout[:, 0] if class_token else rollout[:, before:].mean(axis=1)
    patches = read[:, before:]
    patches = patches / patches.sum(axis=1, keepdims=True)
    return patches.reshape(-1, *grid)


def read_tokens(model: VisionTransformer, images: Any, batch_size: int = 32) -> np.ndarray:
    """Returns the share of every token in the input of the head, float32 `(batch, tokens)`.

    A class token has the share 1, the tokens of a mean have equal shares, and attention pooling
    gives the weights of its probe (the mean over heads). Each image sums to 1.

    Raises:
        ConfigError: the model does not pool.
    """
    if model.config.classifier != "map":
        rows, columns = grid_of(model, images)
        shares = share_tokens(model.config, rows * columns + model.config.num_prefix_tokens)
        return np.tile(shares, (len(images), 1))
    return probe_weights(model, images, batch_size).mean(axis=1)


def share_tokens(config: ViTConfig, num_tokens: int) -> np.ndarray:
    """Returns the share of every token in the input of a head without a probe, `(tokens,)`.

    Raises:
        ConfigError: the model does not pool.
    """
    if not config.is_pooled:
        raise ConfigError(
            "A share of each token in what the head reads is known for pooled models; this one "
            f"has classifier={config.classifier!r}."
        )
    first = np.arange(num_tokens) < 1
    front = np.arange(num_tokens) < 2
    averaged = np.arange(num_tokens) >= (
        0 if config.class_token_in_mean else config.num_prefix_tokens
    )
    mean = averaged / averaged.sum()
    shares = {
        "token": first * 1.0,
        "gap": mean,
        "token_and_mean": (first + mean) / 2,
        "token_and_distillation": front / 2,
    }[config.classifier]
    return shares.astype("float32")


def probe_weights(model: VisionTransformer, images: Any, batch_size: int = 32) -> np.ndarray:
    """Returns the weights of the tokens in attention pooling.

    Returns:
        float32 `(batch, heads, tokens)`; zero for tokens that the probe does not attend to.
    """
    weights = run(model, images, ["pool/attention"], batch_size)["pool/attention"][:, :, 0]
    skipped = model.get_layer("pool").skip
    return np.pad(weights, [(0, 0), (0, 0), (skipped, 0)])


def grid_of(model: VisionTransformer, images: Any) -> tuple[int, int]:
    """Returns rows and columns of the patches of a prepared batch."""
    height, width = (images.shape[axis] for axis in image_axes(model))
    return model.config.grid_of((height, width))


def image_axes(model: VisionTransformer) -> tuple[int, int]:
    """Returns the axes of height and width in a batch of images."""
    return (1, 2) if model.data_format == "channels_last" else (2, 3)
