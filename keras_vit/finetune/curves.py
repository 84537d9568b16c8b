"""Draws the learning curves of a training."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from keras_vit.errors import ConfigError
from keras_vit.files import written_beside
from keras_vit.text import in_figure

History = Mapping[str, Sequence[float]]


def draw_curves(
    histories: Mapping[str, History], path: str | os.PathLike[str], steps_per_epoch: int = 1
) -> None:
    """Writes a PNG of loss and accuracy against training steps.

    Curves of training are dashed, curves of validation solid.

    Args:
        histories: name of a training -> the `history` that `fit` returns.
        path: path of the PNG.
        steps_per_epoch: batches per epoch, the same for all trainings.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("Drawing needs matplotlib: pip install 'keras-vit[figures]'.") from error
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axis, quantity in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for k, (name, history) in enumerate(histories.items()):
            validated = f"val_{quantity}" in history
            for key, style in ((quantity, "--"), (f"val_{quantity}", "-")):
                if key not in history:
                    continue
                steps = [steps_per_epoch * (epoch + 1) for epoch in range(len(history[key]))]
                label = in_figure(name) if validated == key.startswith("val_") else None
                marker = "o" if len(steps) == 1 else None
                width = 1.8 if style == "-" else 1.0
                axis.plot(
                    steps, history[key], style, color=f"C{k}", label=label, lw=width, marker=marker
                )
        axis.set(xlabel="training step", ylabel=quantity)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(title="solid: validation, dashed: training", title_fontsize=8, fontsize=8)
    with written_beside(Path(path)) as temporary:
        figure.savefig(temporary, dpi=110, format="png")
