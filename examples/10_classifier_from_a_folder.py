"""
Image classifier in a minute, with label errors
===============================================

Train a classifier on a folder of images in a minute, and find images that are probably mislabeled::

    python examples/10_classifier_from_a_folder.py

The command line does the same: ``keras-vit probe photos --source vit_digits --path run``.
"""

import warnings
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegressionCV
from sklearn.neighbors import KNeighborsClassifier

import keras_vit

# %%
# The folder contains one folder per class: digits with and without a loop. Three files are in the
# wrong folder.

digits = load_digits()
loops = np.isin(digits.target, (0, 6, 8, 9)).astype(int)
names = ("open", "with a loop")
misplaced = (11, 57, 123)
folder = Path("loops")
for k in range(400):
    where = folder / names[1 - loops[k] if k in misplaced else loops[k]]
    where.mkdir(parents=True, exist_ok=True)
    pixels = np.round(digits.images[k] * (255 / 16)).astype("uint8")
    Image.fromarray(pixels).save(where / f"{k:03d}.png")

# %%
# ``probe`` computes the features once and fits a ridge regression. Its exact leave-one-out error
# chooses block, pooling and penalty, so no images need to be held out.

model = keras_vit.VisionTransformer.from_preset("vit_digits")
probe = keras_vit.probe(model, folder, cache="loops-features")
print("\n".join(probe.summary()))

# %%
# The most probable label errors: a classifier trained on all *other* images disagrees with these.

figure, axes = plt.subplots(1, len(misplaced), figsize=(6, 2.2), layout="constrained")
for axis, suspect in zip(axes, probe.suspects, strict=False):
    axis.imshow(Image.open(suspect.image), cmap="gray")
    axis.set_title(f"{suspect.label}?\n{suspect.likely}: {suspect.probability:.0%}", fontsize=9)
    axis.axis("off")
figure.savefig("loops-suspects.png")

# %%
# How reliable is this accuracy? For five random halves of 400 images, the table compares the
# leave-one-out accuracy and its interval with the accuracy on the other half, and with k-NN and
# logistic regression on the same features. The encoder has random weights, because with trained
# weights every digit would be right.

pixels = np.round(digits.images[:400] * (255 / 16)).astype("uint8")[..., None]
keras.utils.set_random_seed(0)
model = keras_vit.VisionTransformer.from_preset("vit_digits", load_weights=False)
features = keras_vit.evaluation.features(model, pixels).values
warnings.filterwarnings("ignore", category=FutureWarning)  # about scikit-learn's defaults


print("leave-one-out (interval) other half   k-NN   logistic regression")
for seed in range(5):
    order = np.random.default_rng(seed).permutation(400)
    half, rest = order[:200], order[200:]
    part = keras_vit.data.from_arrays(pixels[half], loops[half], model.preprocessor)
    small = keras_vit.probe(model, part)
    right = keras_vit.evaluate(small.build_model(model), (pixels[rest], loops[rest]))
    train, test = (features[half], loops[half]), (features[rest], loops[rest])
    nearest = KNeighborsClassifier(10, metric="cosine", weights=lambda d: np.exp((1 - d) / 0.07))
    logistic = LogisticRegressionCV(Cs=5, cv=5, max_iter=2000)
    knn, linear = (usual.fit(*train).score(*test) for usual in (nearest, logistic))
    low, high = small.interval or (0, 1)  # None for regression alone
    print(f"{small.score:6.1%} ({low:.1%} to {high:.1%}) ", end=" ")
    print(f"{right.top1:9.1%} {knn:9.1%} {linear:9.1%}")

# %%
# The first probe becomes a model with calibrated probabilities, which you can save and export.

classifier = probe.build_model(keras_vit.VisionTransformer.from_preset("vit_digits"))
classifier.save_to_preset("loops-classifier")
print(classifier.classify(keras_vit.data.example_image(), top=2))
