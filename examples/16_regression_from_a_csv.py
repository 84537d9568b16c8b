"""
Regression from a CSV file
==========================

Predict measurements, such as the length and width of a grain, from images::

    python examples/16_regression_from_a_csv.py

The program first draws grains. To use your own photos, start at ``ImageSource``. The command line
does the same: ``keras-vit finetune grains/train --labels-file sizes.csv --task regression --source
vit_digits --path run``.
"""

import csv
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import keras_vit
from keras_vit.data import ImageSource
from keras_vit.training import TransferRecipe

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
for part, count in {"train": 700, "test": 100}.items():
    folder, rows = Path("grains", part), []
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(count):
        length, width = sorted(rng.uniform(0.6, 2.4, 2), reverse=True)  # millimetres
        y, x = np.indices((32, 32)) - rng.normal(15.5, 2, (2, 1, 1))
        angle = rng.uniform(0, np.pi)
        along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
        inside = np.hypot(along / length, across / width) < 5  # 10 pixels are a millimetre
        noisy = np.clip(30 + 170 * inside + rng.normal(0, 20, inside.shape), 0, 255)
        Image.fromarray(noisy.astype("uint8")).save(folder / f"{k:03d}.png")
        rows.append([f"{k:03d}.png", f"{length:.3f}", f"{width:.3f}"])
    with (folder / "sizes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "length", "width"], *rows])

# %%
# ``sizes.csv`` has one line per image, such as ``000.png,1.592,1.034``. The quickest model is a
# ridge regression on frozen features. The errors that ``summary`` shows are cross-validated.

train, test = (
    ImageSource(f"grains/{part}", labels_file="sizes.csv", task="regression")
    for part in ("train", "test")
)
model = keras_vit.VisionTransformer.from_preset("vit_digits")
probe = keras_vit.probe(model, train)
print("\n".join(probe.summary()))
ridge = probe.build_model(model)
ridge.save_to_preset("grains_ridge")

# %%
# ``finetune`` then trains every weight with the mean squared error, and saves the preset that is
# best on a tenth of the training images. It needs enough images: with 300 instead of 700, and
# starting from ``vit_digits``, the ridge regression was better.

recipe = TransferRecipe(steps=160, batch_size=32, learning_rate=0.02)
result = keras_vit.finetune("grains_ridge", train, path="grains_run", recipe=recipe)
tuned = keras_vit.VisionTransformer.from_preset(result.path)

# %%
# Both models are tested on new images.

models = {"ridge regression": ridge, "fine-tuned": tuned}
scores = {name: keras_vit.evaluate(each, test.read(each)) for name, each in models.items()}
for name, score in scores.items():
    error, r2 = score.mean_absolute_error, score.r2
    print(f"{name:>16}: mean absolute error {error:.3f} mm, R2 {r2:.3f}")

# %%
# A regression model predicts with ``predict``; ``classify`` is for classes.

data = test.read(tuned)
paths = list(data.paths or ())
predicted = tuned.predict(tuned.preprocessor(paths), verbose=0)  # (100, 2)
figure, (first, *others) = plt.subplots(1, 4, figsize=(10, 2.6), layout="constrained")
for k, name in enumerate(data.class_names):
    first.scatter(data.labels[:, k], predicted[:, k], s=6, label=name)
first.set(xlabel="measured", ylabel="predicted")
first.legend()
for axis, path, (length, width) in zip(others, paths, predicted, strict=False):
    axis.imshow(Image.open(path), cmap="gray")
    axis.set_title(f"{length:.2f} x {width:.2f} mm")
    axis.axis("off")
