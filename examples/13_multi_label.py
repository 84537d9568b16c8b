"""
Multi-label classification with a CSV file
==========================================

Train a classifier for images with any number of labels. The labels are a table with a column of
0 and 1 for each class::

    python examples/13_multi_label.py

The program first draws images of up to three circles, squares and triangles in noise. To use your
own photos, start at ``from_folder``. The command line does the same: ``keras-vit finetune shapes
--labels-file labels.csv --source vit_digits --path run``.
"""

import csv
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

import keras_vit
from keras_vit.evaluation import choose_thresholds
from keras_vit.training import TransferRecipe, train

keras.utils.set_random_seed(0)
rng, folder, rows = np.random.default_rng(0), Path("shapes"), []
names = ("circle", "square", "triangle")
folder.mkdir(exist_ok=True)
for k in range(400):
    picture = Image.new("L", (32, 32))
    draw = ImageDraw.Draw(picture)
    shapes = [s for s in names if rng.random() < 0.45]
    for shape, place in zip(shapes, rng.permutation(4), strict=False):
        x, y, size = 2 + 16 * (place % 2), 2 + 16 * (place // 2), int(rng.integers(8, 12))
        box = (x, y, x + size, y + size)
        if shape == "circle":
            draw.ellipse(box, fill=110)
        elif shape == "square":
            draw.rectangle(box, fill=110)
        else:
            draw.polygon([(x, y + size), (x + size, y + size), (x + size // 2, y)], fill=110)
    noisy = np.clip(picture + rng.normal(60, 45, (32, 32)), 0, 255).astype("uint8")
    Image.fromarray(noisy).save(folder / f"{k:03d}.png")
    rows.append([f"{k:03d}.png", *(int(name in shapes) for name in names)])
with (folder / "labels.csv").open("w", newline="") as file:
    csv.writer(file).writerows([["path", *names], *rows])

# %%
# ``labels.csv`` has one line per image, such as ``000.png,1,0,1``. About a fifth of every class is
# held out for validation.

recipe = TransferRecipe(80, 32, steps_per_epoch=10)
preprocessor = keras_vit.Preprocessor.from_preset("vit_digits", image_size=32)
images = keras_vit.data.from_folder(
    folder, preprocessor, labels_file="labels.csv", **recipe.data_args
)
data, validation = images.hold_out(0.2)
print(data.class_counts)

# %%
# A multi-label model predicts an independent probability for each class. The loss is binary
# cross-entropy, and the metric is the area under the precision-recall curve.

model = keras_vit.VisionTransformer.from_preset(
    "vit_digits", num_classes=3, class_names=data.class_names, image_size=32, task="multi_label"
)
train(model, data, validation, recipe=recipe, path="shapes_run", resume=True, verbose=2)

# %%
# A class is predicted when its probability reaches its threshold, which is 0.5 by default.
# ``choose_thresholds`` finds the thresholds with the highest F1 on the validation images; the
# preset stores them.

model.thresholds = choose_thresholds(model, validation)
model.save_to_preset("shapes_model")
scores = keras_vit.evaluate(model, validation)
print(f"mean average precision: {scores.mean_average_precision:.3f}, F1: {scores.f1:.3f}")

# %%
# ``classify``, ``keras-vit predict`` and the server return every label that reaches its threshold,
# the most probable first.

tuned = keras_vit.VisionTransformer.from_preset("shapes_model")
figure, axes = plt.subplots(2, 4, figsize=(8, 4.4), layout="constrained")
paths = list(validation.paths or ())[:8]
for axis, path, answer in zip(axes.flat, paths, tuned.classify(paths), strict=True):
    axis.imshow(Image.open(path), cmap="gray")
    axis.set_title("\n".join(f"{label} {share:.2f}" for label, share in answer) or "none")
    axis.axis("off")
