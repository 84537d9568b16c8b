"""Explanations of a prediction: attention weights of chosen blocks, and attention rollout."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.files import written_beside
from keras_vit.model import VisionTransformer
from keras_vit.terminal import in_figure
from keras_vit.tokens import block_index


def attention_maps(
    model: VisionTransformer,
    images: Any,
    blocks: Sequence[int] | None = None,
    batch_size: int = 32,
) -> dict[int, np.ndarray]:
    """Returns the softmax weights of chosen blocks (Eq. 6).

    The blocks run on the backend's fused attention, which keeps no weights. The weights of
    the chosen blocks are computed again, from the tokens that enter each block.

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
    asked = range(model.config.num_layers) if blocks is None else blocks
    chosen = [block_index(model, block) for block in asked]
    outputs = {}
    for block in sorted(set(chosen)):
        layer = model.get_layer(f"block_{block}")
        # The inputs of a block are its tokens, and the rotary positions if the model has them.
        outputs[str(block)] = _AttentionWeights(layer)(*keras.tree.flatten(layer.input))
    maps = keras.Model(model.input, outputs).predict(images, batch_size=batch_size, verbose=0)
    return {block: maps[str(block)] for block in sorted(set(chosen))}


class _AttentionWeights(keras.layers.Layer):
    """Returns the softmax weights of a block from the tokens that enter it."""

    def __init__(self, block: keras.layers.Layer) -> None:
        super().__init__(dtype=block.dtype_policy)
        self.block = block
        self.built = True

    def call(self, tokens: Any, rotary: Any = None) -> Any:
        return self.block.attention_weights(tokens, rotary)

    def compute_output_spec(self, tokens: Any, rotary: Any = None) -> keras.KerasTensor:
        batch, count, _ = tokens.shape
        return keras.KerasTensor((batch, self.block.num_heads, count, count), dtype="float32")


def attention_rollout(
    maps: Mapping[int, np.ndarray],
    grid: tuple[int, int],
    class_token: bool = True,
    reads: np.ndarray | None = None,
) -> np.ndarray:
    """Returns how much each patch contributes to the prediction (Abnar and Zuidema 2020; Figure 6).

    Weights are averaged over heads, mixed half and half with the identity for the
    residual connection, and multiplied through the blocks. Tokens before the patches, a class
    token or registers, take part in the product and are left out of the result.

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
        weights = (weights + np.eye(weights.shape[-1], dtype=weights.dtype)) / 2
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
        ConfigError: the model takes any size, or does not pool.
    """
    config = model.config
    if config.num_tokens is None or not config.is_pooled:
        raise ConfigError("read_tokens needs a model that pools, with a fixed image_size.")
    if config.classifier == "map":
        pool = model.get_layer("pool")
        weights = _ProbeWeights(pool)(pool.input)
        part = keras.Model(model.input, weights)
        shares = np.asarray(part.predict(images, batch_size=batch_size, verbose=0), "float32")
        return np.pad(shares, [(0, 0), (config.num_tokens - shares.shape[1], 0)])
    first = np.arange(config.num_tokens) < 1
    front = np.arange(config.num_tokens) < 2
    averaged = np.arange(config.num_tokens) >= (
        0 if config.class_token_in_mean else config.num_prefix_tokens
    )
    mean = averaged / averaged.sum()
    shares = {
        "token": first * 1.0,
        "gap": mean,
        "token_and_mean": (first + mean) / 2,
        "token_and_distillation": front / 2,
    }[config.classifier]
    return np.tile(shares.astype("float32"), (len(images), 1))


class _ProbeWeights(keras.layers.Layer):
    """Returns the weights of the tokens in attention pooling, averaged over heads."""

    def __init__(self, pool: keras.layers.Layer) -> None:
        super().__init__(dtype=pool.dtype_policy)
        self.pool = pool
        self.built = True

    def call(self, tokens: Any) -> Any:
        return keras.ops.mean(self.pool.attention_weights(tokens), axis=(1, 2))

    def compute_output_spec(self, tokens: Any) -> keras.KerasTensor:
        batch, count, _ = tokens.shape
        return keras.KerasTensor((batch, count - self.pool.skip), dtype="float32")


def draw_explanations(
    model: VisionTransformer,
    images: Any,
    path: str | os.PathLike[str],
    titles: Sequence[str] | None = None,
) -> None:
    """Writes a PNG: each image, with its prediction, above its attention rollout.

    Args:
        model: a `VisionTransformer` with a class token or pooled tokens.
        images: images as for `model.preprocessor`.
        path: path of the PNG.
        titles: one line above each image; None for the label and its probability.

    Raises:
        ConfigError: matplotlib is not installed, or the model takes any size.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("Drawing needs matplotlib: pip install keras-vit[figures].") from error
    if model.config.grid is None:
        raise ConfigError("Drawing needs a fixed image_size: load the model with image_size=.")
    batch = model.preprocessor(images)
    style: dict[str, Any] = {"fontsize": 9}
    if titles is None:
        answers = model.classify(images, top=1)
        titles = [f"{in_figure(answer[0][0])}  {answer[0][1]:.0%}" for answer in answers]
        style["usetex"] = False  # a label from a file must not run as LaTeX
    maps = attention_maps(model, batch)
    rollout = attention_rollout(maps, model.config.grid, reads=read_tokens(model, batch))
    pictures = model.preprocessor.pixels(batch)
    columns = min(len(pictures), 12)
    rows = -(-len(pictures) // columns)
    figure = Figure(figsize=(1.3 * columns, 3.1 * rows), layout="constrained")
    axes = figure.subplots(2 * rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    height, width = pictures.shape[1:3]
    for k, (picture, weights, title) in enumerate(zip(pictures, rollout, titles, strict=True)):
        above, below = axes[2 * (k // columns) : 2 * (k // columns) + 2, k % columns]
        grey = picture.mean(axis=-1)
        shown = picture if picture.shape[-1] == 3 else grey
        above.imshow(shown, cmap="gray", vmin=0, vmax=1)
        above.set_title(title, **style)
        below.imshow(grey, cmap="gray", vmin=0, vmax=1)
        edges = (-0.5, width - 0.5, height - 0.5, -0.5)
        below.imshow(weights, cmap="magma", alpha=0.6, extent=edges, interpolation="bilinear")
    with written_beside(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
