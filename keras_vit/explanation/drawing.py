"""Pictures of explanations, one function for each kind of numbers.

Colour maps are perceptually uniform, every patch is a square of one colour, aspect ratios are kept.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.explanation.faithfulness import BASELINES, Curve
from keras_vit.explanation.maps import explain
from keras_vit.explanation.model_figures import Filters, TokenNorms
from keras_vit.files import written_beside
from keras_vit.model import VisionTransformer
from keras_vit.text import in_figure

_INK = {False: "#1b1f24", True: "#e6e6e6"}


def figure_class() -> Any:
    """Returns matplotlib's Figure; raises `ConfigError` if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("Drawing needs matplotlib: pip install 'keras-vit[figures]'.") from error
    return Figure


@contextmanager
def theme(dark: bool) -> Iterator[None]:
    """Makes figures inside the context have light or dark ink and a transparent background."""
    figure_class()
    import matplotlib

    ink = _INK[dark]
    names = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    clear = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor")
    with matplotlib.rc_context({**dict.fromkeys(names, ink), **dict.fromkeys(clear, "none")}):
        yield


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
    figure, axis = _one(5.2, 3.4, "Norms of the patches' tokens behind each block")
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


def draw_faithfulness(curves: Mapping[str, tuple[Curve, Curve]]) -> Any:
    """Returns a figure of deletion and insertion curves, means over the images.

    Args:
        curves: name of a method -> its curves of `deletion` and `insertion`.
    """
    # narrow, so that its letters are 9 pixels high on a telephone
    figure = figure_class()(figsize=(4.4, 3.2 + 0.19 * len(curves)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for k, (name, pair) in enumerate(curves.items()):
        style = "--" if name in BASELINES else "-"
        areas = " / ".join(f"{curve.areas.mean():.2f}" for curve in pair)
        for axis, curve in zip(axes, pair, strict=True):
            mean = curve.probabilities.mean(axis=0)
            label = f"{name.replace('_', ' ')} {areas}" if axis is axes[0] else None
            axis.plot(curve.shares, mean, style, color=f"C{k}", label=label)
    for axis, title in zip(axes, ("deletion: low is good", "insertion: high is good"), strict=True):
        axis.set_title(title, fontsize=10)
        axis.set(xlabel="share of the pixels", ylim=(0, 1.02))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("probability of the class")
    figure.legend(loc="outside lower center", fontsize=9, frameon=False, title="areas under both")
    return figure


def overlay(picture: np.ndarray, map_: np.ndarray, most: float | None = None) -> np.ndarray:
    """Returns a picture with a map on it, float32 `(height, width, 3)` in [0, 1].

    High values are opaque and bright; the picture is unchanged where the map is 0 or negative.

    Args:
        picture: the picture, `(height, width, 1 or 3)` in [0, 1].
        map_: the map, `(height, width)`.
        most: the value of the brightest colour; None for the largest value of the map.
    """
    figure_class()
    from matplotlib import colormaps

    most = float(map_.max()) if most is None else most
    share = np.clip(map_ / most, 0, 1) if most > 0 else np.zeros_like(map_)
    colours = colormaps["inferno"](0.25 + 0.75 * share)[..., :3]
    alpha = (0.65 * share)[..., None]
    shown = picture if picture.shape[-1] == 3 else picture[..., :1].repeat(3, axis=-1)
    return (shown * (1 - alpha) + colours * alpha).astype("float32")


def draw_methods(picture: np.ndarray, maps: Mapping[str, Mapping[str, np.ndarray]]) -> Any:
    """Returns a figure of one image: a row for each class, a column for each method.

    Args:
        picture: `(height, width, 1 or 3)` in [0, 1].
        maps: label of a class -> name of a method -> `(height, width)`.
    """
    rows, columns = len(maps), max(len(methods) for methods in maps.values())
    height, width = picture.shape[:2]
    size = (1.9 * columns, rows * (1.9 * height / width + 0.5))
    figure = figure_class()(figsize=size, layout="constrained")
    for axes, (label, methods) in zip(
        figure.subplots(rows, columns, squeeze=False), maps.items(), strict=True
    ):
        for axis, (name, map_) in zip(axes, methods.items(), strict=True):
            axis.imshow(overlay(picture, map_))
            axis.set_title(name.replace("_", " "), fontsize=8)
            axis.set_xticks([])
            axis.set_yticks([])
        axes[0].set_ylabel(_wrapped(in_figure(label), 22), fontsize=8, usetex=False)
    return figure


def draw_explanations(
    model: VisionTransformer,
    images: Any,
    path: str | os.PathLike[str],
    titles: Sequence[str] | None = None,
    method: str = "rollout",
) -> None:
    """Writes a PNG: each image, with its prediction, above its explanation.

    Args:
        model: a `VisionTransformer` with a class token or pooled tokens.
        images: images as for `model.preprocessor`.
        path: path of the PNG.
        titles: one line above each image; None for the label and its probability.
        method: a method of `keras_vit.explain`.

    Raises:
        ConfigError: matplotlib is not installed, or as `keras_vit.explain`.
    """
    figure_type = figure_class()
    batch = model.preprocessor(images)
    if titles is None:
        titles = [
            f"{in_figure(answer[0][0])}  {answer[0][1]:.0%}"
            for answer in model.classify(images, top=1)
        ]
    maps = explain(model, batch, method=method).maps
    pictures = model.preprocessor.pixels(batch)
    columns = min(len(pictures), 6)
    rows = -(-len(pictures) // columns)
    height, width = pictures.shape[1:3]
    side = 2.4 if columns > 1 else 3.6
    lines = [_wrapped(title, round(side * 13)) for title in titles]
    above = 0.25 + 0.16 * max(line.count("\n") + 1 for line in lines)
    size = (side * columns, rows * (2 * side * height / width + above))
    figure = figure_type(figsize=size, layout="constrained")
    axes = figure.subplots(2 * rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for k, (picture, map_, title) in enumerate(zip(pictures, maps, lines, strict=True)):
        above_axis, below = axes[2 * (k // columns) : 2 * (k // columns) + 2, k % columns]
        above_axis.imshow(
            picture if picture.shape[-1] == 3 else picture[..., 0], cmap="gray", vmin=0, vmax=1
        )
        above_axis.set_title(title, fontsize=9, usetex=False)  # a label must not run as LaTeX
        below.imshow(overlay(picture, map_))
    with written_beside(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def _wrapped(title: str, width: int) -> str:
    """Returns a title broken into lines; matplotlib's escapes are not broken."""
    pieces = [title[k : k + width] for k in range(0, len(title), width)] or [""]
    for k, piece in enumerate(pieces[:-1]):
        if piece.endswith("\\"):
            pieces[k], pieces[k + 1] = piece[:-1], "\\" + pieces[k + 1]
    return "\n".join(pieces)


def _one(width: float, height: float, title: str) -> tuple[Any, Any]:
    figure = figure_class()(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    axis.set_title(title, fontsize=10)
    return figure, axis


def _whole_numbers(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

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
