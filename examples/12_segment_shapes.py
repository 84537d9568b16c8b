"""
A class for every pixel
=======================

A linear layer on the patches of a frozen model segments images::

    python examples/12_segment_shapes.py

The images show plain, horizontally striped and vertically striped shapes on noise. The model has
only learned handwritten digits.
"""

import matplotlib.pyplot as plt
import numpy as np

import keras_vit
from keras_vit.evaluation import dense_probe

CLASSES = ("background", "plain", "horizontal", "vertical")


def draw(count: int, height: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws grey images `(count, height, width, 1)`, and their label maps."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices((height, width))
    fillings = {1: np.ones_like(rows), 2: rows // 2 % 2, 3: columns // 2 % 2}
    light = np.zeros((count, height, width))
    labels = np.zeros((count, height, width), "uint8")
    for image, label in zip(light, labels, strict=True):
        for kind, filling in fillings.items():
            row, column = rng.uniform(0.2, 0.8, 2) * (height, width)
            radius = rng.uniform(8, 16)
            down, right = abs(rows - row), abs(columns - column)
            is_disc = rng.random() < 0.5
            inside = np.hypot(down, right) < radius if is_disc else np.maximum(down, right) < radius
            image[inside], label[inside] = filling[inside], kind
    pixels = 40 + 150 * light + 30 * rng.standard_normal(light.shape)
    return np.clip(pixels, 0, 255).astype("uint8")[..., None], labels


# %%
# ``dense_probe`` passes over 200 images once for the features of four blocks, and solves a
# least-squares problem. Class weights make up for the large background.

model = keras_vit.VisionTransformer.from_preset("vit_digits", image_size=64)
images, labels = draw(200, 64, 64, seed=0)
probe = dense_probe(model, images, labels, blocks=(0, 1, 2, 3), class_weights=(0.3, 1, 1, 1))

# %%
# On new images, it prints intersection over union, and the share of right pixels.

images, labels = draw(50, 64, 64, seed=1)
scores = probe.evaluate(model, images, labels)
print(f"mean intersection over union {scores.miou:.1%}, right pixels {scores.accuracy:.1%}")
for name, share in zip(CLASSES, scores.iou, strict=True):
    print(f"{name:>10} {share:.1%}")

# %%
# A window of the model's size slides over a larger image.

(image,), (truth,) = draw(1, 80, 120, seed=2)
segmented = probe.predict(model, image, sliding=True)[0]

figure, axes = plt.subplots(1, 3, figsize=(10, 2.6), layout="constrained")
pictures = {"image": image[..., 0], "drawn": truth, "segmented": segmented}
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture, **({"cmap": "gray"} if title == "image" else {"vmin": 0, "vmax": 3}))
    axis.set_title(title)
    axis.axis("off")
