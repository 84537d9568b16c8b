"""Pictures of explanations: images with a coloured square over every patch."""

import os
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.environment.extras import import_extra
from keras_vit.explanation.maps import explain
from keras_vit.files import written_beside
from keras_vit.model import VisionTransformer
from keras_vit.text import visible


def import_matplotlib(module: str = "matplotlib") -> Any:
    """Returns a module of matplotlib; raises `ConfigError` if matplotlib is not installed."""
    return import_extra(module, "figures", "Drawing")


def overlay(picture: np.ndarray, map_: np.ndarray, most: float | None = None) -> np.ndarray:
    """Returns a picture with a map on it, float32 `(height, width, 3)` in [0, 1].

    High values are opaque and bright; the picture is unchanged where the map is 0 or negative.

    Args:
        picture: the picture, `(height, width, 1 or 3)` in [0, 1].
        map_: the map, `(height, width)`.
        most: the value of the brightest colour; None for the largest value of the map.
    """
    most = float(map_.max()) if most is None else most
    share = np.clip(map_ / most, 0, 1) if most > 0 else np.zeros_like(map_)
    colours = import_matplotlib().colormaps["inferno"](0.25 + 0.75 * share)[..., :3]
    alpha = (0.65 * share)[..., None]
    shown = picture if picture.shape[-1] == 3 else picture[..., :1].repeat(3, axis=-1)
    return (shown * (1 - alpha) + colours * alpha).astype("float32")


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
    figure_type = import_matplotlib("matplotlib.figure").Figure
    batch = model.preprocessor(images)
    if titles is None:
        titles = [
            f"{visible(answer[0][0])}  {answer[0][1]:.0%}"
            for answer in model.classify(images, top=1)
        ]
    maps = explain(model, batch, method=method).maps
    pictures = model.preprocessor.pixels(batch)
    columns = min(len(pictures), 6)
    rows = -(-len(pictures) // columns)
    height, width = pictures.shape[1:3]
    side = 2.4 if columns > 1 else 3.6
    width_in_letters = round(side * 13)
    lines = [textwrap.fill(t, width_in_letters, max_lines=3, placeholder="…") for t in titles]
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
        # A label must not run as LaTeX or mathematics.
        above_axis.set_title(title, fontsize=9, usetex=False, parse_math=False)
        below.imshow(overlay(picture, map_))
    with written_beside(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
