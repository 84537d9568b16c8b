"""The figures of the papers as numbers: filters, positions, attention distance, token norms."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.explanation.pixels import pixels_per_patch
from keras_vit.model import VisionTransformer


class Filters(NamedTuple):
    """The filters of the first layer.

    Args:
        kernels: float32 `(count, rows, columns, channels)`: principal components of the patch
            embedding, of length 1, the strongest first; for a hybrid, the kernels of its root.
        explained: float32 `(count,)`, the share of the variance of all filters that each component
            explains; None for a hybrid.
    """

    kernels: np.ndarray
    explained: np.ndarray | None


def patch_filters(model: VisionTransformer, count: int = 28) -> Filters:
    """Returns the principal components of the patch embedding (Figure 7, left).

    Each of the `hidden_size` filters is one observation of `rows * columns * channels` numbers;
    their mean is subtracted. The largest number of a component is positive. For a hybrid, which
    has a stem before its patches, the result is the standardised kernels of its root.

    Args:
        model: a `VisionTransformer`.
        count: most filters to return.
    """
    if model.config.resnet is not None:
        kernels = _numpy(model.get_layer("root").conv.standardised_kernel())
        return Filters(np.moveaxis(kernels, -1, 0)[:count], None)
    kernel = _numpy(model.get_layer("patch_embedding").kernel).astype("float64")
    filters = kernel.reshape(-1, kernel.shape[-1]).T
    _, lengths, components = np.linalg.svd(filters - filters.mean(axis=0), full_matrices=False)
    largest = np.abs(components).argmax(axis=1)
    components *= np.sign(components[np.arange(len(components)), largest])[:, None]
    shares = lengths**2 / (lengths**2).sum()
    kernels = components.reshape(-1, *kernel.shape[:-1])
    return Filters(kernels[:count].astype("float32"), shares[:count].astype("float32"))


def position_similarity(model: VisionTransformer) -> np.ndarray:
    """Returns the cosine similarity of the position embeddings (Figure 7, centre; Figure 10).

    Returns:
        float32 `(rows, columns, rows, columns)` on the grid of the stored embeddings.

    Raises:
        ConfigError: the model has no position embeddings.
    """
    config = model.config
    if config.position == "none" or config.source_grid is None:
        turned = " turns queries and keys instead (rope)" if config.rope else " has none"
        raise ConfigError(
            f"Position embeddings can be compared where there are some; the model{turned}."
        )
    rows, columns = config.source_grid
    layer = model.get_layer("position_embedding")
    table = _numpy(layer._embedding_of(rows, columns, config.hidden_size))[0]
    table = table[-rows * columns :].astype("float64")
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-30)
    return (unit @ unit.T).reshape(rows, columns, rows, columns).astype("float32")


def attention_distance(
    maps: Mapping[int, np.ndarray], grid: tuple[int, int], config: ViTConfig
) -> dict[int, np.ndarray]:
    """Returns the mean attention distance of each head in pixels (Figures 7 and 11; appendix D.7).

    The distance between the middles of two patches is weighted by attention and averaged over
    all queries among the patches and all images. Tokens before the patches have no distance: the
    weights on the patches are scaled to a sum of 1.

    Args:
        maps: result of `attention_maps`.
        grid: rows and columns of the patches.
        config: configuration of the model.

    Returns:
        The distances of each block, `{block: float32 (heads,)}`.
    """
    sides = pixels_per_patch(config)
    y, x = np.meshgrid(*(np.arange(n) * p for n, p in zip(grid, sides, strict=True)), indexing="ij")
    places = np.stack([y.ravel(), x.ravel()], axis=1)
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    means = {}
    for block, weights in maps.items():
        before = weights.shape[-1] - len(places)
        seen = weights[:, :, before:, before:].astype("float64")
        mean = (seen * distance).sum(axis=-1) / np.maximum(seen.sum(axis=-1), 1e-30)
        means[block] = mean.mean(axis=(0, 2)).astype("float32")
    return means


class TokenNorms(NamedTuple):
    """The norms of the patches' tokens behind each block.

    Args:
        norms: float32 `(blocks, batch, rows, columns)`.
        outlier_share: float32 `(blocks,)`, the share of patches whose norm is above `factor` times
            the median of its block.
        factor: the factor of `outlier_share`.
    """

    norms: np.ndarray
    outlier_share: np.ndarray
    factor: float


def token_norms(
    model: VisionTransformer, images: Any, *, factor: float = 3.0, batch_size: int = 32
) -> TokenNorms:
    """Returns the norms of tokens by depth, and the share of outliers (arXiv 2309.16588).

    Large models without registers store global information in a few background patches, whose norms
    are large. The paper calls norms above 150 outliers, a number for DINOv2; a multiple of the
    median serves all models.
    """
    blocks = range(model.config.num_layers)
    tokens: Any = model.tokens(images, blocks, norm=False, batch_size=batch_size)
    norms = np.stack([np.linalg.norm(tokens[block].patches, axis=-1) for block in blocks])
    medians = np.median(norms, axis=(1, 2, 3), keepdims=True)
    share = (norms > factor * medians).mean(axis=(1, 2, 3))
    return TokenNorms(norms.astype("float32"), share.astype("float32"), factor)


def looks_untrained(model: VisionTransformer) -> list[str]:
    """Returns a sentence for each part whose weights look untrained.

    Trained filters are smooth and trained positions resemble their neighbours; a conversion that
    mixes up the order of axes destroys both properties. A sentence is a warning and no proof: a
    training on few images leaves rough filters, too.
    """
    sentences = []
    if model.config.resnet is None and min(model.config.patch_size) >= 8:
        kernel = _numpy(model.get_layer("patch_embedding").kernel).astype("float64")
        likeness = _neighbours(np.moveaxis(kernel, -1, 0))
        if likeness < 0.2:
            sentences.append(
                f"Neighbouring weights of the filters correlate by {likeness:.2f}; trained ones "
                "by more than 0.2."
            )
    grid = model.config.source_grid
    if model.config.position == "learned" and grid is not None and min(grid) >= 4:
        similar = position_similarity(model)
        near = np.concatenate(
            [
                np.einsum("rcrc->rc", similar[:, :-1, :, 1:]).ravel(),
                np.einsum("rcrc->rc", similar[:-1, :, 1:, :]).ravel(),
            ]
        ).mean()
        rise = float(near - similar.mean())
        if rise < 0.05:
            sentences.append(
                f"Neighbouring positions are more alike than others by {rise:.2f} (cosine); "
                "trained ones by more than 0.05."
            )
    return sentences


def _neighbours(kernels: np.ndarray) -> float:
    """Returns the mean correlation of neighbouring weights in rows and columns of each filter."""
    kernels = kernels - kernels.mean(axis=(1, 2), keepdims=True)
    pairs = ((kernels[:, :-1], kernels[:, 1:]), (kernels[:, :, :-1], kernels[:, :, 1:]))
    return float(np.mean([(a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()) for a, b in pairs]))


def _numpy(tensor: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
