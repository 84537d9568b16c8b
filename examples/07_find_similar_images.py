"""
Feature extraction and image search
===================================

Extract the features of a folder of images, and find the images that are most similar to a query::

    python examples/07_find_similar_images.py

The command for the features is ``keras-vit embed pictures --source vit_digits --path
pictures.npy``.
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
# ``embed`` writes one row of features per file. After an interruption, the same call resumes.

model = keras_vit.VisionTransformer.from_preset("vit_digits")
if not Path("pictures.npy").exists():
    keras_vit.embed(model, sorted(folder.glob("*.png")), "pictures.npy")


def unit(features: np.ndarray) -> np.ndarray:
    """Scales each row to length 1, so that products of rows are cosine similarities."""
    return features / np.linalg.norm(features, axis=1, keepdims=True)


gallery = unit(np.load("pictures.npy"))  # (200, 64)
paths = json.loads(Path("pictures.npy.json").read_text())["paths"]

# %%
# The most similar images have the highest cosine similarity to the features of the query.

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
