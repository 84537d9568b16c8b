"""Attention weights of blocks, attention rollout, and the tokens that the head reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError, expect_model, shown
from keras_vit.models.image_checks import prepare
from keras_vit.models.inference import run
from keras_vit.models.tokens import check_stages, compute_grid
from keras_vit.models.vision_transformer import VisionTransformer


def attention_maps(
    model: VisionTransformer,
    images: Any,
    stages: str | Sequence[str] | None = None,
    batch_size: int = 32,
    *,
    prepared: bool = False,
) -> dict[str, np.ndarray]:
    """Returns which tokens attend to which, in each block and head: the softmax of Eq. 6.

    The chosen blocks compute their attention step by step, because the backend's fused attention
    returns no weights.

    Args:
        model: a `VisionTransformer`.
        images: paths, PIL images or arrays, as for `model.preprocessor`.
        stages: name of a stage, such as `"block_3/attention"`, or several names; None for those of
            all blocks.
        batch_size: images per step.
        prepared: whether `images` is a batch that `model.preprocessor` has made.

    Returns:
        `{stage: float32 (batch, heads, tokens, tokens)}`; each row sums to 1.

    Raises:
        ConfigError: a name is not that of the attention of a block; an image cannot be read; or the
            images may be a prepared batch, and `prepared` is False.
    """
    every = [f"block_{block}/attention" for block in range(expect_model(model).config.num_layers)]
    chosen = every if stages is None else np.ravel(stages).tolist()
    check_stages(chosen, every)
    maps = run(model, prepare(model, images, prepared), chosen, batch_size)
    return {stage: maps[stage] for stage in chosen}


def attention_rollout(
    maps: Mapping[str, np.ndarray],
    grid: tuple[int, int],
    reads: np.ndarray | None = None,
) -> np.ndarray:
    """Returns how much each patch contributes to the prediction (Abnar and Zuidema 2020; Figure 6).

    The mean of the heads is mixed half and half with the identity for the residual connection, and
    the matrices of all blocks are multiplied. The product includes the learned tokens before the
    patches; the result has only the patches.

    Args:
        maps: result of `attention_maps`, for all blocks or the last blocks.
        grid: the patch grid, `model.config.grid`.
        reads: the share of each token in the input of the head, `(tokens,)` or `(batch, tokens)`,
            as `read_tokens` returns it; None for a head that reads the class token.

    Returns:
        The contributions, float32 `(batch, rows, columns)`; each image sums to 1.

    Raises:
        ConfigError: `maps` is not a result of `attention_maps`.
    """
    if not isinstance(maps, Mapping):
        raise ConfigError(
            f"maps={shown(maps)}: expected the result of attention_maps(model, images). "
            'keras_vit.explain(model, images, method="rollout") does both.'
        )
    rollout: Any = None
    for stage in sorted(maps, key=lambda name: (len(name), name)):  # block_2 before block_10
        weights = maps[stage].mean(axis=1)  # (batch, tokens, tokens)
        weights = weights + np.eye(weights.shape[-1], dtype=weights.dtype)
        weights = weights / weights.sum(axis=-1, keepdims=True)
        rollout = weights if rollout is None else weights @ rollout
    before = rollout.shape[-1] - grid[0] * grid[1]
    if reads is None:
        reads = np.eye(1, rollout.shape[-1])[0]
    shares = np.broadcast_to(np.asarray(reads, "float32"), rollout.shape[:2])
    patches = np.einsum("bt,btp->bp", shares, rollout)[:, before:]
    patches = patches / patches.sum(axis=1, keepdims=True)
    return patches.reshape(-1, *grid)


def read_tokens(
    model: VisionTransformer, images: Any, batch_size: int = 32, *, prepared: bool = False
) -> np.ndarray:
    """Returns how much each token contributes to the input of the head, `(batch, tokens)`.

    A class token has the weight 1, the tokens of a mean have equal weights, and attention pooling
    gives the attention of its probe (the mean over heads). The float32 weights of each image sum
    to 1.

    Args:
        model, images, batch_size, prepared: as for `attention_maps`.

    Raises:
        ConfigError: the model does not pool; or as `attention_maps`.
    """
    images = prepare(expect_model(model), images, prepared)
    if not model.config.pool.is_map:
        rows, columns = compute_grid(model, images)
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
            "The head of a pooled model reads a share of each token; this model does not pool: "
            f"pool.kind={config.pool.kind!r}."
        )
    place = np.arange(num_tokens)
    of_class = (place < config.tokens.class_tokens) / max(config.tokens.class_tokens, 1)
    of_patches = (place >= config.num_prefix_tokens) / (num_tokens - config.num_prefix_tokens)
    blocks = config.pool.blocks
    shares = {
        "token": of_class,
        "tokens": of_class,
        "gap": of_patches,
        "mean": np.full(num_tokens, 1 / num_tokens),
        "token_and_mean": (blocks * of_class + of_patches) / (blocks + 1),
        "token_and_distillation": (place < 2) / 2,
    }[config.pool.kind]
    return shares.astype("float32")


def probe_weights(model: VisionTransformer, images: Any, batch_size: int = 32) -> np.ndarray:
    """Returns the weights of the tokens in attention pooling.

    Returns:
        float32 `(batch, heads, tokens)`; zero for tokens that the probe does not attend to.
    """
    weights = run(model, images, ["pool/attention"], batch_size)["pool/attention"][:, :, 0]
    return np.pad(weights, [(0, 0), (0, 0), (model.get_layer("pool").skip, 0)])
