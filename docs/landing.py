"""Draws the picture of the landing page: KERAS_BACKEND=torch python docs/landing.py

Everything in it is what three calls of the library return; thumbnail.png is its map alone.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import keras_vit

HERE = Path(__file__).parent
INK, RED = "#3c4043", "#b3261e"


def main() -> None:
    """Writes landing.png and _static/thumbnail.png."""
    model = keras_vit.VisionTransformer.from_preset("vit_digits")
    photo = Image.open(keras_vit.data.example_image())
    answer = model.classify(photo, top=4)[0]
    batch = model.preprocessor(photo)
    found = keras_vit.explain(model, batch, target=answer[0][0], method="relevance")
    attention = keras_vit.attention_rollout(
        keras_vit.attention_maps(model, batch), model.config.grid
    )[0]

    plt.rcParams |= {"font.size": 12, "text.color": INK, "axes.labelcolor": INK}
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.1), width_ratios=(1, 1.15, 1, 1))
    axes[0].imshow(photo, cmap="gray")
    axes[0].set_title("an image", pad=10)
    labels, probabilities = zip(*answer, strict=True)
    bars = axes[1].barh(labels, probabilities, color=[RED, *["#dadce0"] * 3], height=0.62)
    axes[1].bar_label(bars, fmt="{:.1%}", padding=6, color=INK)
    axes[1].set_box_aspect(1 / 1.15)
    axes[1].invert_yaxis()
    axes[1].set(xlim=(0, 1.3), xticks=[])
    axes[1].set_title("classify", pad=10, family="monospace")
    axes[1].tick_params(left=False, labelsize=14, labelcolor=INK)
    for axis, heat, title in (
        (axes[2], attention, "attention"),
        (axes[3], found.patches[0], "explain"),
    ):
        axis.imshow(photo, cmap="gray")
        extent = (0, *photo.size, 0)
        axis.imshow(
            np.clip(heat, 0, None),
            extent=extent,
            cmap="magma",
            alpha=0.62,
            interpolation="bilinear",
        )
        axis.set_title(title, pad=10, family="monospace")
    for axis in axes:
        axis.spines[:].set_visible(False)
    for axis in (axes[0], *axes[2:]):
        axis.set(xticks=[], yticks=[])
    figure.tight_layout(w_pad=2.5)
    figure.savefig(HERE / "landing.png", dpi=130, facecolor="white")
    for axis, picture in ((axes[2], "_static/thumbnail.png"),):
        box = axis.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        figure.savefig(HERE / picture, dpi=130, bbox_inches=box)


if __name__ == "__main__":
    main()
