"""Similarity of blocks, receptive fields of tokens, and accuracy by the number of examples."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.errors import ConfigError
from keras_vit.evaluation import features, few_shot
from keras_vit.explanation.attention import grid_of
from keras_vit.explanation.gradients import compiled, gradient
from keras_vit.explanation.maps import checked_batch
from keras_vit.model import VisionTransformer
from keras_vit.tokens import block_index


def block_similarity(
    model: VisionTransformer,
    images: Any,
    other: VisionTransformer | None = None,
    other_images: Any = None,
    *,
    batch_size: int = 32,
) -> np.ndarray:
    """Returns the centred kernel alignment of all blocks with all blocks (arXiv 2108.08810).

    The alignment of two blocks is 1 if their tokens differ only by a rotation and a scale. The
    kernels are computed from the flattened tokens of the patches. Each batch gives an unbiased
    estimate of the Hilbert-Schmidt independence criterion, and the estimates are averaged before
    the quotient (Nguyen, Raghu and Kornblith 2021, Eqs. 2 and 3), so one batch is in memory.

    Args:
        model: a `VisionTransformer`.
        images: a float batch in the model's size and range, at least 4 images.
        other: another model; None for the same model.
        other_images: the same images in the other model's size and range; None for `images`.
        batch_size: images per estimate, at least 4; a last batch of fewer than 4 is left out.

    Returns:
        The alignment, float32 `(blocks, blocks of the other model)`.

    Raises:
        ConfigError: there are fewer than 4 images, or `other_images` differ in number.
    """
    images = checked_batch(images, batch_size)
    others = images if other_images is None else checked_batch(other_images, batch_size)
    if len(images) < 4 or batch_size < 4 or len(images) != len(others):
        raise ConfigError(
            f"{len(images)} images, {len(others)} for the other model, batch_size={batch_size}: "
            "expected at least 4, and the same images for both."
        )
    sums: list[Any] = [0.0, 0.0, 0.0]
    for start in range(0, len(images), batch_size):
        part = np.s_[start : start + batch_size]
        if len(images[part]) < 4:
            break
        first = _kernels(model, images[part])
        second = (
            first
            if other is None and other_images is None
            else _kernels(other or model, others[part])
        )
        sums[0] = sums[0] + _independence(first, second)
        sums[1] = sums[1] + np.array([_independence(k[None], k[None])[0, 0] for k in first])
        sums[2] = sums[2] + np.array([_independence(k[None], k[None])[0, 0] for k in second])
    return (sums[0] / np.sqrt(np.outer(sums[1], sums[2]))).astype("float32")


def _kernels(model: VisionTransformer, images: np.ndarray) -> np.ndarray:
    """Returns X X^T of every block without its diagonal, float64 `(blocks, batch, batch)`."""
    blocks = range(model.config.num_layers)
    tokens: Any = model.tokens(images, blocks, norm=False, batch_size=len(images))
    flat = (tokens[b].patches.reshape(len(images), -1).astype("float64") for b in blocks)
    kernels = np.stack([x @ x.T for x in flat])
    kernels[:, np.arange(len(images)), np.arange(len(images))] = 0
    return kernels


def _independence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the unbiased criterion HSIC_1 (Song et al. 2012) of all pairs, `(len(a), len(b))`."""
    n = a.shape[-1]
    products = np.einsum("aij,bji->ab", a, b)
    sums = np.outer(a.sum(axis=(1, 2)), b.sum(axis=(1, 2))) / ((n - 1) * (n - 2))
    crossed = np.einsum("ai,bi->ab", a.sum(axis=1), b.sum(axis=1)) * 2 / (n - 2)
    return (products + sums - crossed) / (n * (n - 3))


def receptive_field(
    model: VisionTransformer,
    images: Any,
    blocks: Sequence[int],
    *,
    patch: tuple[int, int] | None = None,
    batch_size: int = 32,
) -> dict[int, np.ndarray]:
    """Returns the effective receptive field of a patch behind blocks (arXiv 1701.04128).

    The field is the derivative of the token's sum over channels by every pixel: absolute values,
    averaged over the images and summed over the colours, then scaled to a sum of 1.

    Args:
        model: a `VisionTransformer`.
        images: a float batch in the model's size and range.
        blocks: indices of blocks, negative indices from the end.
        patch: row and column of the patch; None for the patch in the middle.
        batch_size: images per step.

    Returns:
        The field of each block, `{block: float32 (height, width)}`.

    Raises:
        ConfigError: the model has no such block or patch.
    """
    images = checked_batch(images, batch_size)
    rows, columns = grid_of(model, images)
    row, column = (rows // 2, columns // 2) if patch is None else patch
    if not (0 <= row < rows and 0 <= column < columns):
        raise ConfigError(f"patch={patch}: the grid has {rows} rows and {columns} columns.")
    token = model.config.num_prefix_tokens + row * columns + column
    chosen = [block_index(model, block) for block in blocks]
    names = [f"block_{block}" for block in chosen]
    channels = -1 if model.data_format == "channels_last" else 1

    def of_batch(batch: Any) -> Any:
        found = []
        for name in names:

            def score(sources: list[Any], name: str = name) -> tuple[Any, list[Any]]:
                tokens = model(sources[0], training=False, stages=[name])[name]
                return ops.sum(ops.cast(tokens[:, token], "float32")), []

            slopes = gradient(score, [batch])[0][0]
            found.append(ops.sum(ops.abs(slopes), axis=channels))
        return ops.stack(found)

    run = compiled(model, of_batch)
    total: Any = 0.0
    for start in range(0, len(images), batch_size):
        slopes = keras.ops.convert_to_numpy(run(images[start : start + batch_size]))
        total = total + slopes.astype("float64").sum(axis=1)
    total = total / np.maximum(total.sum(axis=(1, 2), keepdims=True), 1e-30)
    return dict(zip(chosen, total.astype("float32"), strict=True))


def few_shot_curve(
    model: VisionTransformer,
    train: Any,
    test: Any,
    shots: Sequence[int] = (1, 2, 5, 10),
    *,
    layer: str = "pre_logits",
    num_seeds: int = 3,
    batch_size: int = 32,
) -> dict[int, tuple[float, float]]:
    """Returns accuracy against the number of examples of each class (Figure 4's form).

    Args:
        model: a `VisionTransformer`, which is not changed.
        train, test: images with labels, as in `keras_vit.evaluate`.
        shots: numbers of examples of each class, as in `keras_vit.few_shot`.
        layer: name of the layer whose features are classified.
        num_seeds: number of draws of the examples.
        batch_size: images per step.

    Returns:
        The accuracies, `{shots: (mean, standard deviation over the seeds)}`.
    """
    examples, held_out = (
        features(model, data, layer, batch_size=batch_size) for data in (train, test)
    )
    found = few_shot(examples, held_out, shots, num_seeds=num_seeds)
    return {k: (float(np.mean(a)), float(np.std(a))) for k, a in found.items()}
