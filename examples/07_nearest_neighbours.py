"""Find the images that look most like a given one, by their features.

python examples/07_nearest_neighbours.py digit.png
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit

folder = Path("gallery")
folder.mkdir(exist_ok=True)
digits = load_digits()
for k, image in enumerate(digits.images[:200]):
    pixels = np.round(image * (255 / 16)).astype("uint8")
    Image.fromarray(pixels).save(folder / f"{k:03d}_is_a_{digits.target[k]}.png")

# Once: interrupted, the same call goes on where it stopped. From the command line:
#     keras-vit embed gallery --preset vit_digits --out gallery.npy
model = keras_vit.VisionTransformer.from_preset("vit_digits")
if not Path("gallery.npy").exists():
    keras_vit.embed(model, sorted(folder.glob("*.png")), "gallery.npy")


def unit(features: np.ndarray) -> np.ndarray:
    """Scales each row to length 1: products of such rows are cosines."""
    return features / np.linalg.norm(features, axis=1, keepdims=True)


gallery = unit(np.load("gallery.npy"))  # (200, 64)
paths = json.loads(Path("gallery.npy.json").read_text())["paths"]
query = unit(keras_vit.features(model, model.preprocessor(sys.argv[1])).values)  # (1, 64)
similarity = (gallery @ query.T)[:, 0]
for k in np.argsort(-similarity)[:5]:
    print(f"{similarity[k]:.3f}  {paths[k]}")
