"""Learning curves: vit_digits fine-tuned to a new question, and the same model from scratch.

    for backend in jax torch tensorflow; do
        KERAS_BACKEND=$backend python -m weights.learning_curves docs
    done

The question is whether a digit has a loop, as 0, 6, 8 and 9 do; the images are PNG files of
32x32 pixels. The 1,437 training digits of `train_digits.py` train, its 360 test digits, which
vit_digits has never seen, test. Both trainings have one recipe; the one from scratch is
longer. The folder gets `learning_curves.json`, with one entry per backend, and
`learning_curves.png`, which shows the last one.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import keras_vit
from keras_vit.support.files import write_json
from keras_vit.training import TransferRecipe, train
from weights.train_digits import digits

LOOPS = (0, 6, 8, 9)
BATCH_SIZE, STEPS_PER_EPOCH = 64, 25
TRAININGS = {"vit_digits": (True, 300), "from scratch": (False, 1500)}
"""Name -> whether it starts from the preset, and its steps."""


def write_images(folder: Path) -> None:
    """Writes the digits as `train/loop/0000.png` and so on."""
    train_images, test_images, train_digits, test_digits = digits()
    for part, images, classes in (
        ("train", train_images, train_digits),
        ("test", test_images, test_digits),
    ):
        for k, (image, digit) in enumerate(zip(images, classes, strict=True)):
            path = folder / part / ("loop" if digit in LOOPS else "open") / f"{k:04d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(image[..., 0])
            picture.resize((32, 32), Image.Resampling.BILINEAR).save(path)


def learn(images: Path, out: Path, from_preset: bool, steps: int) -> dict[str, Any]:
    """Trains once; returns the history, whose `val_` figures are of the test digits."""
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer.from_preset(
        "vit_digits", num_classes=2, class_names=("loop", "open"), load_weights=from_preset
    )
    data = keras_vit.data.from_folder(
        images / "train", model, BATCH_SIZE, steps_per_epoch=STEPS_PER_EPOCH
    )
    test = keras_vit.data.from_folder(images / "test", model, 120)
    recipe = TransferRecipe(steps, BATCH_SIZE, learning_rate=0.01, steps_per_epoch=STEPS_PER_EPOCH)
    return train(model, data, test, recipe=recipe, path=out, verbose=2)


def draw_curves(histories: dict[str, dict[str, Any]], path: Path) -> None:
    """Writes a figure of loss and accuracy; curves of training are dashed, of the test solid."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    words = {"loss": "cross-entropy loss", "accuracy": "accuracy (fraction of images)"}
    for axis, quantity in zip(figure.subplots(1, 2), words, strict=True):
        for k, (name, history) in enumerate(histories.items()):
            steps = STEPS_PER_EPOCH * (1 + np.arange(len(history[quantity])))
            axis.plot(steps, history[quantity], "--", color=f"C{k}", lw=1.0)
            axis.plot(steps, history[f"val_{quantity}"], color=f"C{k}", label=name, lw=1.8)
        axis.set(xlabel=f"training step ({BATCH_SIZE} images each)", ylabel=words[quantity])
        axis.grid(alpha=0.3)
        axis.legend(title="solid: test, dashed: training", title_fontsize=8, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    histories = {}
    with tempfile.TemporaryDirectory() as work:
        write_images(Path(work))
        for name, (from_preset, steps) in TRAININGS.items():
            out = Path(work, "out", name)
            histories[name] = learn(Path(work), out, from_preset, steps)
    for name, history in histories.items():
        accuracy = np.array(history["val_accuracy"])
        good = np.flatnonzero(accuracy >= 0.98)
        first = f"from step {STEPS_PER_EPOCH * (good[0] + 1)}" if len(good) else "never"
        print(f"{name}: {accuracy[-1]:.4f} at the end, at least 0.98 {first}")
    file = folder / "learning_curves.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    write_json(file, {**kept, keras.backend.backend(): histories})
    draw_curves(histories, folder / "learning_curves.png")


if __name__ == "__main__":
    main()
