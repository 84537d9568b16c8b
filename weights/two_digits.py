"""Two digits in one picture: which half speaks for which? Measures it, and draws docs/explain.

    KERAS_BACKEND=torch python -m weights.two_digits docs/explain

vit_digits learns pictures of two training digits side by side (16 x 32 pixels) in 15 epochs of
2,880 pictures, with a target of one half for each digit. 100 pictures of two test digits are then
explained for both digits. With --source FOLDER a model that was trained so is taken.
"""

import argparse
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from matplotlib.figure import Figure

import keras_vit
from keras_vit.explanation import brightness
from keras_vit.explanation.curves import BASELINES
from keras_vit.explanation.report import overlay
from keras_vit.support.arguments import AnyMethod
from weights.train_digits import digits

FAITHFULNESS = runpy.run_path(
    str(Path(__file__).parents[1] / "examples" / "paper" / "faithfulness.py")
)
METHODS: tuple[AnyMethod, ...] = ("occlusion", "relevance", "integrated_gradients", "gradcam")
LEFT, RIGHT = (0, 0, 16, 16), (16, 0, 32, 16)


def points_at(maps: np.ndarray, boxes: Sequence[tuple[float, float, float, float]]) -> np.ndarray:
    """Returns whether the largest value of each map lies in its box (the pointing game).

    Args:
        maps: the maps, `(batch, height, width)`. If several pixels have the largest value, such as
            the pixels of one patch, their middle counts.
        boxes: left, top, right and lower edge in pixels, for each map.

    Returns:
        True for each map whose largest value is in its box, bool `(batch,)`.

    Source: Zhang et al. 2016, *Top-down neural attention by excitation backprop*, without the
    margin of 15 pixels.
    """
    results = []
    for map_, (left, top, right, lower) in zip(maps, boxes, strict=True):
        y, x = (c.mean() + 0.5 for c in np.nonzero(map_ == map_.max()))
        results.append(left <= x < right and top <= y < lower)
    return np.array(results)


def share_inside(
    maps: np.ndarray, boxes: Sequence[tuple[float, float, float, float]]
) -> np.ndarray:
    """Returns the share of the positive values of each map that lies in its box, `(batch,)`.

    This is the energy-based pointing game of Wang et al. 2020 (Score-CAM). A pixel counts as inside
    if its middle is inside. The share of a map without positive values is 0.
    """
    y, x = (np.arange(n) + 0.5 for n in maps.shape[1:])
    results = []
    for map_, (left, top, right, lower) in zip(np.maximum(maps, 0), boxes, strict=True):
        inside = ((top <= y) & (y < lower))[:, None] & (left <= x) & (x < right)
        total = map_.sum()
        results.append(map_[inside].sum() / total if total else 0.0)
    return np.array(results, "float32")


def pairs(
    images: np.ndarray, classes: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns pictures of two different digits, uint8 `(count, 8, 16, 1)`, and both digits."""
    left, right = rng.integers(0, len(images), (2, 2 * count))
    keep = classes[left] != classes[right]
    left, right = left[keep][:count], right[keep][:count]
    pictures = np.concatenate([images[left], images[right]], axis=2)
    return pictures, np.stack([classes[left], classes[right]], axis=1)


def trained() -> Any:
    """Returns vit_digits after 15 epochs of pictures of two digits."""
    keras.utils.set_random_seed(0)
    images, _, classes, _ = digits()
    model = keras_vit.VisionTransformer.from_preset("vit_digits", image_size=(16, 32))
    steps, rng = 15 * 45, np.random.default_rng(0)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps - 60, warmup_target=1e-3, warmup_steps=60
    )
    model.compile(
        keras.optimizers.AdamW(rate, weight_decay=0.02, global_clipnorm=1.0),
        keras.losses.CategoricalCrossentropy(from_logits=True),
    )
    for _ in range(15):
        pictures, both = pairs(images, classes, 2880, rng)
        targets = np.eye(10, dtype="float32")[both].mean(axis=1)
        model.fit(model.preprocessor(pictures), targets, batch_size=64, verbose=2)
    return model


def measure(model: Any, batch: np.ndarray, both: np.ndarray) -> None:
    """Prints how often each method finds the right halves, and the areas of the curves."""
    for method in METHODS:
        maps = [
            keras_vit.explain(model, batch, both[:, k], method, prepared=True).maps for k in (0, 1)
        ]
        boxes = [[box] * len(batch) for box in (LEFT, RIGHT)]
        share = [share_inside(m, b) > 0.5 for m, b in zip(maps, boxes, strict=True)]
        point = [points_at(m, b) for m, b in zip(maps, boxes, strict=True)]
        most, top = (np.mean(left & right) for left, right in (share, point))
        print(f"{method}: right for both digits, most of the map {most:.0%}, its top {top:.0%}")
    for k in (0, 1):
        compare = FAITHFULNESS["compare_methods"]
        areas = compare(model, batch[:60], both[:60, k], METHODS, baseline=-1)
        for name, (deleted, inserted) in areas.items():
            print(f"digit {k + 1}, {name}: {deleted:.3f} {inserted:.3f}")


def draw_faithfulness(curves: Mapping[str, tuple[Any, Any]]) -> Any:
    """Returns a figure of deletion and insertion curves, means over the images.

    Args:
        curves: name of a method -> its curves of `deletion` and `insertion`.
    """
    # narrow, so that its letters are 9 pixels high on a telephone
    figure = Figure(figsize=(4.4, 3.2 + 0.19 * len(curves)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for k, (name, pair) in enumerate(curves.items()):
        style = "--" if name in BASELINES else "-"
        areas = " / ".join(f"{curve.areas.mean():.2f}" for curve in pair)
        for axis, curve in zip(axes, pair, strict=True):
            mean = curve.probabilities.mean(axis=0)
            label = f"{name.replace('_', ' ')} {areas}" if axis is axes[0] else None
            axis.plot(curve.shares, mean, style, color=f"C{k}", label=label)
    titles = ("deletion (lower is better)", "insertion (higher is better)")
    for axis, title, done in zip(axes, titles, ("removed", "inserted"), strict=True):
        axis.set_title(title, fontsize=10)
        axis.set(xlabel=f"fraction of pixels {done}", ylim=(0, 1.02))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("probability of the class")
    figure.legend(
        loc="outside lower center", fontsize=9, frameon=False, title="AUC: deletion / insertion"
    )
    return figure


def draw_methods(picture: np.ndarray, maps: Mapping[str, Mapping[str, np.ndarray]]) -> Any:
    """Returns a figure of one image: a row for each class, a column for each method.

    Args:
        picture: `(height, width, 1 or 3)` in [0, 1].
        maps: label of a class -> name of a method -> `(height, width)`.
    """
    rows, columns = len(maps), max(len(methods) for methods in maps.values())
    height, width = picture.shape[:2]
    size = (1.9 * columns, rows * (1.9 * height / width + 0.5))
    figure = Figure(figsize=size, layout="constrained")
    for axes, (label, methods) in zip(
        figure.subplots(rows, columns, squeeze=False), maps.items(), strict=True
    ):
        for axis, (name, map_) in zip(axes, methods.items(), strict=True):
            axis.imshow(overlay(picture, brightness(map_)))
            axis.set_title(name.replace("_", " "), fontsize=8)
            axis.set_xticks([])
            axis.set_yticks([])
        axes[0].set_ylabel(label, fontsize=8)
    return figure


def draw(model: Any, batch: np.ndarray, both: np.ndarray, folder: Path) -> None:
    """Writes the pictures of docs/explain.md."""
    folder.mkdir(parents=True, exist_ok=True)
    maps: dict[str, dict[str, np.ndarray]] = {
        str(digit): {
            m: keras_vit.explain(model, batch[:1], int(digit), m, prepared=True).maps[0]
            for m in METHODS
        }
        for digit in both[0]
    }
    figures = {"methods": draw_methods(model.preprocessor.pixels(batch[:1])[0], maps)}
    curves: dict[str, Any] = {}
    for name in ("relevance", "integrated_gradients", "random", "centre"):
        map_ = keras_vit.explain(model, batch[:60], both[:60, 0], name, prepared=True).maps
        curves[name] = tuple(
            FAITHFULNESS[curve](model, batch[:60], map_, both[:60, 0], baseline=-1)
            for curve in ("deletion", "insertion")
        )
    figures["curves"] = draw_faithfulness(curves)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=70, facecolor="white")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the pictures are written")
    parser.add_argument("--source", help="a model that was trained so")
    parser.add_argument("--no-measure", action="store_true", help="draw alone")
    arguments = parser.parse_args()
    model = (
        keras_vit.VisionTransformer.from_preset(arguments.source) if arguments.source else trained()
    )
    _, test, _, classes = digits()
    pictures, both = pairs(test, classes, 100, np.random.default_rng(1))
    batch = model.preprocessor(pictures)
    if not arguments.no_measure:
        measure(model, batch, both)
    draw(model, batch, both, arguments.folder)


if __name__ == "__main__":
    main()
