"""Draws the picture of the first page: KERAS_BACKEND=jax python docs/landing.py --keep FOLDER

It makes 1,000 small photographs of scenes that it draws at random (`still_life.py`), trains a ViT
to say what each patch of them shows, and gives it a photograph of one more scene. The picture shows
what the model, `attention_maps` and `tokens` return for that. A quarter of an hour on one core; the
folder keeps photographs and model, so that a new layout takes seconds. The committed picture's
model saw a rougher lemon and finer streaks on the apple: a new run differs a little.
"""

import argparse
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from still_life import AWAY, NAMES, Scene, outlines, photograph, random_scene

import keras_vit

HERE = Path(__file__).parent
SIZE, PATCH, COUNT, TESTED = 96, 8, 1_000, 150
PAPER, INK, RED = "#16181c", "#f1f3f4", "#ff8a80"

BREAKFAST = Scene(*(np.asarray(part, "float32") for part in (
    ((-1.42, 0.1), (0.72, 0.95), (0.05, -1.1), (-0.4, 1.45), (1.55, -0.35), (AWAY, AWAY)),
    (0.6, 0.2, 0.5, 2.75, 0.3, 0.5),
    (1.0, 1.0, 0.95, 1.1, 1.0, 1.0),
    ((0.5, 0.012, 0.02), (0.45, 0.5, 0.06), (0.85, 0.6, 0.02), (0.02, 0.13, 0.27),
     (0.75, 0.2, 0.32), (0.8, 0.78, 0.72)),
    ((0.36, 0.19, 0.085), (0.2, 0.09, 0.035)),
    1.0,
    (0.2, 0.24, 0.27),
    (-4.0, -0.8, 5.2),
    (1.1, 0.5),
    (0.5, -6.4, 3.7),
    (0.05, 0.2, 0.62),
    (0.68, 0.1),
)))  # fmt: skip
"""A scene without a die: the model is to say so."""


def photographs(folder: Path) -> dict[str, np.ndarray]:
    """Returns images (count, 96, 96, 3) of random scenes, and the share of each patch that shows
    each thing (count, 12, 12, 6)."""
    rng, file = np.random.default_rng(0), folder / "photographs.npz"
    if not file.exists():
        images, shares = [], []
        for k in range(COUNT):
            scene, _ = random_scene(rng)
            images.append(photograph(scene, size=SIZE, samples=4, bounces=2, steps=36, seed=k))
            shown = np.asarray(outlines(scene, size=SIZE), "float32")
            grid = SIZE // PATCH
            shares.append(shown.reshape(grid, PATCH, grid, PATCH, -1).mean((1, 3)))
        np.savez(file, images=images, shares=shares)
    return dict(np.load(file))


class Batches(keras.utils.PyDataset):
    """Photographs in a new order: mirrored, and in another light.

    Args:
        images: photographs, (count, 96, 96, 3).
        shares: the share of each patch that shows each thing, (count, 12, 12, 6).
        steps: batches of an epoch.
    """

    def __init__(self, images: np.ndarray, shares: np.ndarray, steps: int) -> None:
        super().__init__()
        self.images, self.shares, self.steps = images, shares, steps
        self.rng = np.random.default_rng(1)

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.rng.integers(len(self.images), size=(batch := 24))
        pixels, shares = self.images[rows].astype("float32"), self.shares[rows]
        mirrored = self.rng.random(batch) < 0.5
        pixels[mirrored], shares[mirrored] = pixels[mirrored, :, ::-1], shares[mirrored, :, ::-1]
        pixels *= self.rng.uniform(0.75, 1.25, (batch, 1, 1, 1))
        pixels *= self.rng.uniform(0.9, 1.1, (batch, 1, 1, 3))
        soft = self.rng.random(batch) < 0.5  # the photograph to come has less noise
        pixels[soft] = (pixels + np.roll(pixels, 1, 1) + np.roll(pixels, 1, 2))[soft] / 3
        pixels = np.clip(pixels, 0, 255) / np.float32(127.5) - 1
        return pixels, targets(shares)


def targets(shares: np.ndarray) -> np.ndarray:
    """Returns 1 for a thing that fills half of a patch, less for less of it, (batch, 144, 6)."""
    return np.minimum(2 * shares, 1).reshape(len(shares), -1, len(NAMES))


def train(images: np.ndarray, shares: np.ndarray) -> keras_vit.VisionTransformer:
    """Trains a ViT with a head for every patch."""
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=SIZE, patch_size=PATCH, hidden_size=64, num_layers=4, num_heads=4, mlp_dim=192,
        pooling="unpooled", classifier_activation="sigmoid", num_classes=6, class_names=NAMES,
    )  # fmt: skip
    schedule = keras.optimizers.schedules.CosineDecay(0.0, 500, warmup_target=2e-3, warmup_steps=50)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0)
    model.compile(optimizer, "auto", metrics=["binary_accuracy"])
    data = Batches(images[TESTED:], shares[TESTED:], 50)
    test = images[:TESTED] / np.float32(127.5) - 1, targets(shares[:TESTED])
    model.fit(data, epochs=10, validation_data=test, verbose=2)
    return model


def main() -> None:
    """Makes what is not in the folder, and draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, required=True)
    folder = parser.parse_args().keep
    if not (folder / "model").exists():
        train(**photographs(folder)).save_to_preset(folder / "model")
    model = keras_vit.VisionTransformer.from_preset(folder / "model")
    file = folder / "breakfast.png"
    if not file.exists():
        Image.fromarray(photograph(BREAKFAST, size=576, samples=40, steps=60)).save(file)
    draw(model, Image.open(file))


def draw(model: keras_vit.VisionTransformer, photo: Image.Image) -> None:
    """Writes landing.webp, and the map of the mug as _static/thumbnail.png."""
    batch = model.preprocessor(photo)
    by_patch = model.probabilities(batch, prepared=True)[0]  # (144, 6)
    best = by_patch.max(axis=0)
    order = np.argsort(-best)
    for k in order:
        print(f"{NAMES[k]:9} {best[k]:.1%}")
    mug = by_patch[:, NAMES.index("mug")]
    (weights,) = keras_vit.explanation.attention_maps(
        model, batch, blocks=[-1], prepared=True
    ).values()
    grid = model.config.grid
    maps = {
        "mug": mug.reshape(grid),
        "attention": weights[0, :, mug.argmax()].mean(0).reshape(grid),
    }
    patches = model.tokens(batch, prepared=True).patches[0]

    plt.rcParams |= {"font.size": 15, "text.color": INK, "font.family": "DejaVu Sans"}
    figure = plt.figure(figsize=(12, 6.3), facecolor=PAPER)
    axes = figure.subplot_mosaic(
        [["photo", "photo", "bars", "features"], ["photo", "photo", "mug", "attention"]],
        gridspec_kw={"left": 0.015, "right": 0.985, "bottom": 0.025, "top": 0.93,
                     "wspace": 0.05, "hspace": 0.17},
    )  # fmt: skip
    for axis in axes.values():
        axis.set(xticks=[], yticks=[], facecolor=PAPER)
        axis.spines[:].set_visible(False)
    axes["photo"].imshow(photo)
    axes["photo"].set_title("a photograph", pad=8)

    names, probabilities = [NAMES[k] for k in order], best[order]
    bars = axes["bars"].barh(names, probabilities, height=0.62, color=RED)
    axes["bars"].bar_label(bars, fmt="{:.0%}", padding=5)
    axes["bars"].set(xlim=(0, 1.35), yticks=range(len(names)))
    axes["bars"].set_yticklabels(names, color=INK)
    axes["bars"].tick_params(left=False, pad=2)
    axes["bars"].invert_yaxis()
    axes["bars"].set_title("what is there?", pad=8)
    place = axes["bars"].get_position()
    axes["bars"].set_position([place.x0 + 0.09, place.y0, place.width - 0.1, place.height])

    axes["features"].imshow(components(patches), interpolation="bicubic")
    axes["features"].set_title("features", pad=8)
    titles = {"mug": "where is the mug?", "attention": "attention of the mug"}
    for label, heat in maps.items():
        shade = np.asarray(photo.convert("L").convert("RGB")) // 2
        axes[label].imshow(shade)
        axes[label].imshow(
            heat, extent=(0, *photo.size, 0), cmap="magma", interpolation="bicubic",
            alpha=np.clip(heat / heat.max() * 1.6, 0, 0.85),
        )  # fmt: skip
        axes[label].set_title(titles[label], pad=8)
    file = HERE / "landing.png"
    figure.savefig(file, dpi=120)
    Image.open(file).convert("RGB").save(HERE / "landing.webp", quality=88, method=6)
    box = axes["mug"].get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    figure.savefig(HERE / "_static" / "thumbnail.png", dpi=110, bbox_inches=box)
    file.unlink()


def components(patches: np.ndarray) -> np.ndarray:
    """Returns three principal components of the features as colours (rows, columns, 3)."""
    rows = patches.reshape(-1, patches.shape[-1])
    rows = rows - rows.mean(axis=0)
    scores = rows @ np.linalg.svd(rows, full_matrices=False)[2][:3].T
    low, high = np.percentile(scores, (2, 98), axis=0)
    return np.clip((scores - low) / (high - low), 0, 1).reshape(*patches.shape[:2], 3)


if __name__ == "__main__":
    main()
