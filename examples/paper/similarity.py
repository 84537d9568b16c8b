"""Figure 4's form, receptive fields and similarity of blocks: vit_digits before and after training.

python examples/paper/similarity.py pictures
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from keras_vit.errors import ConfigError
from keras_vit.evaluation import features, few_shot
from keras_vit.explanation.gradients import compile_call, gradient
from keras_vit.explanation.maps import check_batch
from keras_vit.models.tokens import compute_grid
from keras_vit.models.vision_transformer import VisionTransformer


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
        batch_size: images per estimate, at least 4; a last batch of fewer than 4 is skipped.

    Returns:
        The alignment, float32 `(blocks, blocks of the other model)`.

    Raises:
        ConfigError: there are fewer than 4 images, or `other_images` differ in number.
    """
    images = check_batch(images, batch_size)
    others = images if other_images is None else check_batch(other_images, batch_size)
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
    blocks = [f"block_{block}" for block in range(model.config.num_layers)]
    tokens = model.tokens(images, blocks, batch_size=len(images), prepared=True).values()
    flat = (each.patches.reshape(len(images), -1).astype("float64") for each in tokens)
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
    stages: Sequence[str],
    *,
    patch: tuple[int, int] | None = None,
    batch_size: int = 32,
) -> dict[str, np.ndarray]:
    """Returns the effective receptive field of a patch in the tokens of stages (arXiv 1701.04128).

    The field is the derivative of the token's sum over channels by every pixel: absolute values,
    averaged over the images and summed over the colours, then scaled to a sum of 1.

    Args:
        model: a `VisionTransformer`.
        images: a float batch in the model's size and range.
        stages: names of stages, such as `"block_3"`.
        patch: row and column of the patch; None for the patch in the middle.
        batch_size: images per step.

    Returns:
        The field of each stage, `{stage: float32 (height, width)}`.

    Raises:
        ConfigError: the model has no such stage or patch.
    """
    images = check_batch(images, batch_size)
    rows, columns = compute_grid(model, images)
    row, column = (rows // 2, columns // 2) if patch is None else patch
    if not (0 <= row < rows and 0 <= column < columns):
        raise ConfigError(f"patch={patch}: the grid has {rows} rows and {columns} columns.")
    token = model.config.num_prefix_tokens + row * columns + column
    channels = -1 if model.data_format == "channels_last" else 1

    def of_batch(batch: Any) -> Any:
        fields = []
        for name in stages:

            def score(sources: list[Any], name: str = name) -> tuple[Any, list[Any]]:
                tokens = model(sources[0], training=False, stages=[name])[name]
                return ops.sum(ops.cast(tokens[:, token], "float32")), []

            slopes = gradient(score, [batch])[0][0]
            fields.append(ops.sum(ops.abs(slopes), axis=channels))
        return ops.stack(fields)

    run = compile_call(model, of_batch)
    total: Any = 0.0
    for start in range(0, len(images), batch_size):
        slopes = run(images[start : start + batch_size])
        total = total + slopes.astype("float64").sum(axis=1)
    total = total / np.maximum(total.sum(axis=(1, 2), keepdims=True), 1e-30)
    return dict(zip(stages, total.astype("float32"), strict=True))


def few_shot_curve(
    model: VisionTransformer,
    train: Any,
    test: Any,
    shots: Sequence[int] = (1, 2, 5, 10),
    *,
    stage: str = "pre_logits",
    num_seeds: int = 3,
    batch_size: int = 32,
) -> dict[int, tuple[float, float]]:
    """Returns accuracy against the number of examples of each class (Figure 4's form).

    Args:
        model: a `VisionTransformer`, which is not changed.
        train, test: prepared images, and their labels.
        shots: numbers of examples of each class, as in `keras_vit.evaluation.few_shot`.
        stage: name of the stage whose features are classified.
        num_seeds: number of draws of the examples.
        batch_size: images per step.

    Returns:
        The accuracies, `{shots: (mean, standard deviation over the seeds)}`.
    """
    examples, held_out = (
        features(model, data, stage, batch_size=batch_size, prepared=True) for data in (train, test)
    )
    scores = few_shot(examples, held_out, shots, num_seeds=num_seeds)
    return {k: (float(np.mean(a)), float(np.std(a))) for k, a in scores.items()}


def draw_similarity(alignment: np.ndarray, names: tuple[str, str] = ("block", "block")) -> Any:
    """Returns a figure of the alignment of blocks with blocks (arXiv 2108.08810)."""
    rows, columns = alignment.shape
    figure = Figure(figsize=(4.8, 0.8 + 4 * min(rows / columns, 2)), layout="constrained")
    axis = figure.subplots()
    axis.set_title("Centred kernel alignment of blocks", fontsize=10)
    picture = axis.imshow(alignment, cmap="magma", vmin=0, vmax=1, origin="lower")
    axis.set(ylabel=names[0], xlabel=names[1])
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(picture, label="alignment", shrink=0.85)
    return figure


def draw_receptive_fields(fields: Mapping[str, np.ndarray]) -> Any:
    """Returns a figure of effective receptive fields: one picture for each stage."""
    height, width = next(iter(fields.values())).shape
    side = 1.7
    size = (max(side * len(fields), 3.2), 0.8 + side * height / width)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle("Effective receptive field of one patch", fontsize=10)
    for axis, (stage, field) in zip(
        figure.subplots(1, len(fields), squeeze=False)[0], fields.items(), strict=True
    ):
        axis.imshow(np.sqrt(field), cmap="magma", vmin=0)
        axis.set_title(stage, fontsize=8)
        axis.axis("off")
    return figure


def draw_few_shot(curve: Mapping[int, tuple[float, float]]) -> Any:
    """Returns a figure of accuracy against examples of each class (Figure 4's form)."""
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.set_title("A linear classifier of few examples", fontsize=10)
    mean, spread = np.array(list(curve.values())).T
    axis.errorbar(list(curve), mean, spread, fmt="o-", capsize=3)
    axis.set(xlabel="examples of each class", ylabel="accuracy", xscale="log")
    axis.set_xticks(list(curve), [str(k) for k in curve])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    return figure


def draw(folder: Path) -> None:
    """Writes the pictures of these figures into a folder."""
    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype("uint8")
    train, test, train_digits, test_digits = train_test_split(
        images[..., None], digits.target, test_size=360, stratify=digits.target, random_state=0
    )
    model = VisionTransformer.from_preset("vit_digits")
    keras.utils.set_random_seed(0)
    untrained = VisionTransformer.from_preset("vit_digits", load_weights=False)
    figures = {}
    for word, one in (("trained", model), ("random", untrained)):
        batch = one.preprocessor(test[:32])
        fields = receptive_field(one, batch, ["block_0", "block_2", "block_4"])
        figures[f"fields_{word}"] = draw_receptive_fields(fields)
        curve = few_shot_curve(
            one, (one.preprocessor(train), train_digits), (batch, test_digits[:32])
        )
        figures[f"few_shot_{word}"] = draw_few_shot(curve)
    figures["alignment"] = draw_similarity(
        block_similarity(model, model.preprocessor(test[:64]), untrained),
        ("trained block", "random block"),
    )
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=70, facecolor="white")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
