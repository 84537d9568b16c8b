"""Draws the picture of the first page: KERAS_BACKEND=jax python docs/landing.py

It makes 2,000 small photographs of scenes that it draws at random (`still_life.py`), trains a ViT on
them to say what lies on the table, and shows it a photograph of a scene of its own. What the picture
shows is what `classify`, `explain`, `attention_rollout` and `tokens` return for that photograph.
Half an hour on one core. `--keep FOLDER` keeps photographs and model, so that a new layout takes
seconds.
"""

import argparse
import math
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch
from PIL import Image
from still_life import AWAY, NAMES, Scene, photograph, random_scene

import keras_vit

HERE = Path(__file__).parent
SIZE, COUNT, TESTED, EPOCHS, BATCH = 96, 2_000, 200, 24, 32
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


def photographs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns photographs of random scenes, (count, 96, 96, 3), and what is in each, (count, 6)."""
    rng = np.random.default_rng(0)
    images, answers = [], []
    while len(images) < count:
        scene, present = random_scene(rng)
        images.append(photograph(scene, size=SIZE, samples=4, bounces=2, steps=36, seed=len(images)))
        answers.append(present)
    return np.stack(images), np.stack(answers)


class Batches(keras.utils.PyDataset):
    """Photographs in a new order in every epoch: mirrored, and in another light."""

    def __init__(self, images: np.ndarray, answers: np.ndarray) -> None:
        super().__init__()
        self.images, self.answers = images, answers
        self.rng = np.random.default_rng(1)
        self.on_epoch_end()

    def __len__(self) -> int:
        return len(self.images) // BATCH

    def on_epoch_end(self) -> None:
        """Draws the order of the next epoch."""
        self.order = self.rng.permutation(len(self.images))

    def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.order[k * BATCH : (k + 1) * BATCH]
        pixels = self.images[rows].astype("float32")
        mirrored = self.rng.random(BATCH) < 0.5
        pixels[mirrored] = pixels[mirrored, :, ::-1]
        pixels *= self.rng.uniform(0.75, 1.25, (BATCH, 1, 1, 1))
        pixels *= self.rng.uniform(0.9, 1.1, (BATCH, 1, 1, 3))
        soft = self.rng.random(BATCH) < 0.5  # the shown photograph has less noise
        near = (pixels, np.roll(pixels, 1, 1), np.roll(pixels, 1, 2), np.roll(pixels, (1, 1), (1, 2)))
        pixels[soft] = np.mean(near, axis=0)[soft]
        return np.clip(pixels, 0, 255) / 127.5 - 1, self.answers[rows]


def train(images: np.ndarray, answers: np.ndarray) -> keras_vit.VisionTransformer:
    """Returns a ViT that says of each thing whether it is in a photograph."""
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=SIZE, patch_size=8, hidden_size=96, num_layers=6, num_heads=4, mlp_dim=288,
        classifier="gap", classifier_activation="sigmoid", num_classes=len(NAMES), labels=NAMES,
    )  # fmt: skip
    data = Batches(images[TESTED:], answers[TESTED:])
    steps = EPOCHS * len(data)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=1.2e-3, warmup_steps=steps // 15
    )
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.02, clipnorm=1.0)
    model.compile(optimizer, "auto", metrics=["binary_accuracy"])
    test = images[:TESTED] / np.float32(127.5) - 1, answers[:TESTED]
    model.fit(data, epochs=EPOCHS, validation_data=test, verbose=2)
    return model


def main() -> None:
    """Makes what is not in the folder, and draws."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path)
    keep = parser.parse_args().keep
    scenes = keep and keep / "scenes.npz"
    if scenes and scenes.exists():
        images, answers = np.load(scenes).values()
    else:
        images, answers = photographs(COUNT)
        if scenes:
            np.savez(scenes, images=images, answers=answers)
    if keep and (keep / "model").exists():
        model = keras_vit.VisionTransformer.from_preset(keep / "model")
    else:
        model = train(images, answers)
        if keep:
            model.save_to_preset(keep / "model")


if __name__ == "__main__":
    main()
