"""Draws the picture of the first page: KERAS_BACKEND=jax python docs/landing.py --keep FOLDER

It makes 1,200 small photographs of scenes that it draws at random (`still_life.py`) and trains a ViT on
them: first to say what each patch shows, then, with a new head, what the whole photograph shows. The
picture shows what `classify`, `explain` and `tokens` return for a photograph of one more scene. A
quarter of an hour on one core; the folder keeps photographs and model, so that a new layout takes
seconds.
"""

import argparse
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch
from PIL import Image
from still_life import AWAY, NAMES, Scene, outlines, photograph, random_scene

import keras_vit

HERE = Path(__file__).parent
SIZE, PATCH, COUNT, TESTED = 96, 8, 1_200, 200
PAPER, INK, DIM, RED = "#16181c", "#f1f3f4", "#9aa0a6", "#ff8a80"

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
        dense: whether an answer is per patch, (batch, 144, 6), or per photograph, (batch, 6).
    """

    def __init__(self, images: np.ndarray, shares: np.ndarray, steps: int, dense: bool) -> None:
        super().__init__()
        self.images, self.shares, self.steps, self.dense = images, shares, steps, dense
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
        if self.dense:
            return pixels, np.minimum(2 * shares, 1).reshape(batch, -1, len(NAMES))
        return pixels, in_view(shares)


def in_view(shares: np.ndarray) -> np.ndarray:
    """Returns 1 for each thing that fills a patch or more of a photograph, (batch, 6)."""
    return (shares.sum((1, 2)) > 1).astype("float32")


def train(images: np.ndarray, shares: np.ndarray) -> keras_vit.VisionTransformer:
    """Trains a ViT on what each patch shows, then on what each photograph shows."""
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=SIZE, patch_size=PATCH, hidden_size=96, num_layers=4, num_heads=4, mlp_dim=192,
        classifier="gap", classifier_activation="sigmoid", num_classes=len(NAMES), labels=NAMES,
    )  # fmt: skip
    per_patch = keras.layers.Dense(len(NAMES), activation="sigmoid")
    dense = keras.Model(model.input, per_patch(model.get_layer("encoder_norm").output))
    test = images[:TESTED] / np.float32(127.5) - 1, in_view(shares[:TESTED])
    for trained, steps, rate in ((dense, 700, 2e-3), (model, 400, 1e-3)):
        data = Batches(images[TESTED:], shares[TESTED:], 50, trained is dense)
        schedule = keras.optimizers.schedules.CosineDecay(
            0.0, steps, warmup_target=rate, warmup_steps=steps // 10
        )
        optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0)
        trained.compile(optimizer, "binary_crossentropy", metrics=["binary_accuracy"])
        tested = None if trained is dense else test
        trained.fit(data, epochs=steps // 50, validation_data=tested, verbose=2)
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
        Image.fromarray(photograph(BREAKFAST, size=576, samples=48, seed=0)).save(file)
    draw(model, Image.open(file))


def draw(model, photo):
    print(model.classify(photo, top=6))


if __name__ == "__main__":
    main()
