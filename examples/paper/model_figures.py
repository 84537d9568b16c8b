"""Figures 7 and 10 of the paper, and the norms of tokens: vit_digits before and after training.

python examples/paper/model_figures.py docs/explain
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from sklearn.datasets import load_digits

from keras_vit import VisionTransformer, ViTConfig
from keras_vit.explanation import attention_maps


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
    if model.config.stem.is_resnet:
        kernels = keras.ops.convert_to_numpy(model.get_layer("root").conv.standardised_kernel())
        return Filters(np.moveaxis(kernels, -1, 0)[:count], None)
    kernel = keras.ops.convert_to_numpy(model.get_layer("patch_embedding").kernel).astype("float64")
    filters = kernel.reshape(-1, kernel.shape[-1]).T
    _, lengths, components = np.linalg.svd(filters - filters.mean(axis=0), full_matrices=False)
    largest = np.abs(components).argmax(axis=1)
    components *= np.sign(components[np.arange(len(components)), largest])[:, None]
    shares = lengths**2 / (lengths**2).sum()
    kernels = components.reshape(-1, *kernel.shape[:-1])
    return Filters(kernels[:count].astype("float32"), shares[:count].astype("float32"))


def position_similarity(model: VisionTransformer) -> np.ndarray:
    """Returns the cosine similarity of learned position embeddings (Figures 7, centre, and 10).

    Returns:
        float32 `(rows, columns, rows, columns)` on the grid of the stored embeddings.
    """
    rows, columns = model.config.source_grid or (0, 0)
    table = keras.ops.convert_to_numpy(model.get_layer("position_embedding").embedding)[0]
    table = table[-rows * columns :].astype("float64")
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    return (unit @ unit.T).reshape(rows, columns, rows, columns).astype("float32")


def attention_distance(
    maps: Mapping[str, np.ndarray], grid: tuple[int, int], config: ViTConfig
) -> dict[int, np.ndarray]:
    """Returns the mean attention distance of each head in pixels (Figures 7 and 11; appendix D.7).

    The distance between the middles of two patches is weighted by attention and averaged over
    all queries among the patches and all images. Tokens before the patches have no distance: the
    weights on the patches are scaled to a sum of 1.

    Args:
        maps: result of `attention_maps`, for all blocks.
        grid: rows and columns of the patches.
        config: configuration of the model.

    Returns:
        The distances of each block, `{block: float32 (heads,)}`.
    """
    sides = config.stride
    y, x = np.meshgrid(*(np.arange(n) * p for n, p in zip(grid, sides, strict=True)), indexing="ij")
    places = np.stack([y.ravel(), x.ravel()], axis=1)
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    means = {}
    for block, weights in enumerate(maps.values()):
        before = weights.shape[-1] - len(places)
        seen = weights[:, :, before:, before:].astype("float64")
        mean = (seen * distance).sum(axis=-1) / np.maximum(seen.sum(axis=-1), 1e-30)
        means[block] = mean.mean(axis=(0, 2)).astype("float32")
    return means


class TokenNorms(NamedTuple):
    """The norms of the patch tokens after each block.

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
    blocks = [f"block_{block}" for block in range(model.config.num_layers)]
    tokens = model.tokens(images, blocks, batch_size=batch_size, prepared=True)
    norms = np.stack([np.linalg.norm(each.patches, axis=-1) for each in tokens.values()])
    medians = np.median(norms, axis=(1, 2, 3), keepdims=True)
    share = (norms > factor * medians).mean(axis=(1, 2, 3))
    return TokenNorms(norms.astype("float32"), share.astype("float32"), factor)


def draw_filters(filters: Filters, columns: int = 7) -> Any:
    """Returns a figure of filters (Figure 7, left), each scaled to its own range."""
    kernels = filters.kernels if filters.kernels.shape[-1] == 3 else filters.kernels[..., :1]
    size = np.abs(kernels).max(axis=(1, 2, 3), keepdims=True)
    shown = 0.5 + 0.5 * kernels / np.maximum(size, 1e-30)
    if filters.explained is None:
        title = f"The first {len(kernels)} kernels of the stem's root"
    else:
        share = filters.explained.sum()
        title = (
            f"{len(kernels)} principal components of the patch embedding ({share:.0%} explained)"
        )
    figure, axis = _one(5.2, 0.4 + 5.2 * -(-len(kernels) // columns) / columns, title)
    axis.imshow(_mosaic(shown, columns).squeeze(), cmap="gray", vmin=0, vmax=1)
    axis.axis("off")
    return figure


def draw_positions(similarity: np.ndarray) -> Any:
    """Returns a figure of position similarity (Figure 7, centre): a small map for each position."""
    rows, columns = similarity.shape[:2]
    tiles = similarity.reshape(rows * columns, rows, columns, 1)
    width = 5.2
    figure, axis = _one(width, 0.6 + width * rows / columns * 0.85, "Similarity of positions")
    picture = axis.imshow(_mosaic(tiles, columns).squeeze(-1), cmap="viridis", vmin=-1, vmax=1)
    axis.set(xlabel=f"one map for each of {columns} columns", ylabel=f"{rows} rows")
    axis.set_xticks([])
    axis.set_yticks([])
    figure.colorbar(picture, label="cosine similarity", shrink=0.85)
    return figure


def draw_distances(distances: Mapping[int, np.ndarray]) -> Any:
    """Returns a figure of attention distances (Figure 7, right): a dot for each head."""
    figure, axis = _one(5.2, 3.4, "Mean attention distance of each head")
    for block, heads in distances.items():
        axis.scatter([block] * len(heads), heads, s=24, c=np.arange(len(heads)), cmap="viridis")
    highest = max(float(heads.max()) for heads in distances.values())
    axis.set(xlabel="block", ylabel="distance (pixels)", ylim=(0, 1.08 * highest))
    _whole_numbers(axis)
    axis.grid(alpha=0.3)
    return figure


def draw_norms(lengths: TokenNorms) -> Any:
    """Returns a figure of token norms by depth (arXiv 2309.16588), and the share of outliers."""
    norms = lengths.norms.reshape(len(lengths.norms), -1)
    blocks = np.arange(len(norms))
    figure, axis = _one(5.2, 3.4, "Norms of the patch tokens after each block")
    for low, high, shade in ((0, 100, 0.2), (25, 75, 0.45)):
        edges = np.percentile(norms, (low, high), axis=1)
        label = "all" if low == 0 else "middle half"
        axis.fill_between(blocks, *edges, alpha=shade, color="C0", lw=0, label=label)
    axis.plot(blocks, np.median(norms, axis=1), "o-", ms=4, color="C0", label="median")
    axis.set(xlabel="block", ylabel="norm", ylim=(0, None))
    _whole_numbers(axis)
    shares = lengths.outlier_share
    axis.legend(
        title=f"above {lengths.factor:g} medians: {shares.max():.1%} at most",
        fontsize=8,
        frameon=False,
    )
    axis.grid(alpha=0.3)
    return figure


def _one(width: float, height: float, title: str) -> tuple[Any, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    axis.set_title(title, fontsize=10)
    return figure, axis


def _whole_numbers(axis: Any) -> None:
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _mosaic(tiles: np.ndarray, columns: int) -> np.ndarray:
    """Returns tiles `(count, rows, columns, channels)` side by side, with transparent gaps."""
    gap = max(1, tiles.shape[1] // 8)
    rows = -(-len(tiles) // columns)
    missing = [(0, rows * columns - len(tiles)), (0, gap), (0, gap), (0, 0)]
    padded = np.pad(tiles.astype("float64"), missing, constant_values=np.nan)
    padded[len(tiles) :] = np.nan
    _, high, wide, channels = padded.shape
    joined = padded.reshape(rows, columns, high, wide, channels).swapaxes(1, 2)
    whole = joined.reshape(rows * high, columns * wide, channels)[:-gap, :-gap]
    if channels == 1:
        return whole
    seen = ~np.isnan(whole).any(axis=-1, keepdims=True)  # colours: alpha 0 in place of NaN
    return np.concatenate([np.nan_to_num(whole), seen], axis=-1)


def draw(folder: Path) -> None:
    """Writes the pictures of these figures that `docs/explain.md` shows."""
    images = np.round(load_digits().images[:32, ..., None] * (255 / 16)).astype("uint8")
    keras.utils.set_random_seed(0)
    for word in ("trained", "random"):
        model = VisionTransformer.from_preset("vit_digits", load_weights=word == "trained")
        batch = model.preprocessor(images)
        grid: Any = model.config.grid
        distances = attention_distance(
            attention_maps(model, batch, prepared=True), grid, model.config
        )
        figures = {
            "filters": draw_filters(patch_filters(model)),
            "positions": draw_positions(position_similarity(model)),
            "distances": draw_distances(distances),
            "norms": draw_norms(token_norms(model, batch)),
        }
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}_{word}.png", dpi=70, facecolor="white")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
