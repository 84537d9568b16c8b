"""
Features, and a search by image
===============================

The features of a model find the images that look most like a given one::

    python examples/07_find_similar_images.py

The program computes them once for a folder of images, and keeps them in a file. The command is
``keras-vit embed pictures --source vit_digits --path pictures.npy``.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit

folder = Path("pictures")
folder.mkdir(exist_ok=True)
digits = load_digits()
for k, image in enumerate(digits.images[:200]):
    pixels = np.round(image * (255 / 16)).astype("uint8")
    Image.fromarray(pixels).save(folder / f"{k:03d}_is_a_{digits.target[k]}.png")

# %%
# ``embed`` writes a row of features for each file. After an interruption, the same call goes on
# where it stopped.

model = keras_vit.VisionTransformer.from_preset("vit_digits")
if not Path("pictures.npy").exists():
    keras_vit.embed(model, sorted(folder.glob("*.png")), "pictures.npy")


def unit(features: np.ndarray) -> np.ndarray:
    """Scales each row to length 1: products of such rows are cosines."""
    return features / np.linalg.norm(features, axis=1, keepdims=True)


gallery = unit(np.load("pictures.npy"))  # (200, 64)
paths = json.loads(Path("pictures.npy.json").read_text())["paths"]

# %%
# The query goes through the same model; the largest cosines are the nearest images.

query = keras_vit.evaluation.features(model, keras_vit.data.example_image()).values
similarity = (gallery @ unit(query).T)[:, 0]
nearest = np.argsort(-similarity)[:6]

figure, axes = plt.subplots(1, 7, figsize=(10, 2), layout="constrained")
axes[0].imshow(Image.open(keras_vit.data.example_image()), cmap="gray")
axes[0].set_title("the query")
for axis, k in zip(axes[1:], nearest, strict=True):
    print(f"{similarity[k]:.3f}  {paths[k]}")
    axis.imshow(Image.open(paths[k]), cmap="gray")
    axis.set_title(f"{similarity[k]:.3f}")
for axis in axes:
    axis.axis("off")
