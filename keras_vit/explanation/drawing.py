"""Pictures of what a model sees."""

import os
from collections.abc import Sequence
from typing import Any

from keras_vit.errors import ConfigError
from keras_vit.explanation.attention import attention_maps, attention_rollout, read_tokens
from keras_vit.files import written_beside
from keras_vit.model import VisionTransformer
from keras_vit.terminal import in_figure


def draw_explanations(
    model: VisionTransformer,
    images: Any,
    path: str | os.PathLike[str],
    titles: Sequence[str] | None = None,
) -> None:
    """Writes a PNG: each image, with its prediction, above its attention rollout.

    Args:
        model: a `VisionTransformer` with a class token or pooled tokens.
        images: what `model.preprocessor` takes.
        path: of the PNG.
        titles: a line above each image; None for the label and its probability.

    Raises:
        ConfigError: matplotlib is not installed, or the model takes any size.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("Drawing needs matplotlib: pip install keras-vit[figures].") from error
    if model.config.grid is None:
        raise ConfigError("Drawing needs a model of a fixed image_size; load it with one.")
    batch = model.preprocessor(images)
    style: dict[str, Any] = {"fontsize": 9}
    if titles is None:
        answers = model.classify(images, top=1)
        titles = [f"{in_figure(answer[0][0])}  {answer[0][1]:.0%}" for answer in answers]
        style["usetex"] = False  # a label is no program
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
