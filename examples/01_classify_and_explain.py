"""
Classify an image, and see why
==============================

A model says what it sees, and which parts of the image speak for the answer::

    python examples/01_classify_and_explain.py

The preset ``vit_digits`` and the image ship with keras_vit. Replace the image by any file, array or
PIL image of your own, and the preset by any name of ``keras-vit list``:
``vit_b16.augreg_i21k_ft_i1k_384`` knows the thousand classes of ImageNet.
"""

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import keras_vit

model = keras_vit.VisionTransformer.from_preset("vit_digits")
photo = Image.open(keras_vit.data.example_image())

# %%
# ``classify`` prepares the image as for the preset's training, and names the most probable classes.

answer = model.classify(photo, top=3)[0]
for label, probability in answer:
    print(f"{label}: {probability:.1%}")

# %%
# A heat map tells which patches speak for a class; each class has a map of its own.

figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
axes[0].imshow(photo, cmap="gray")
axes[0].set_title("the image")
for axis, (label, probability) in zip(axes[1:], answer, strict=False):
    patches = keras_vit.explain(model, photo, target=label, method="relevance").patches[0]
    axis.imshow(photo, cmap="gray")
    heat = patches / np.abs(patches).max()
    axis.imshow(heat, extent=(0, *photo.size, 0), alpha=0.6, cmap="inferno", vmin=0, vmax=1)
    axis.set_title(f"for {label} ({probability:.1%})")
for axis in axes:
    axis.axis("off")
figure.savefig("explained.png")

# %%
# No map is the whole truth. :doc:`/explain` says what each method shows, and how to measure which
# of them to believe.
