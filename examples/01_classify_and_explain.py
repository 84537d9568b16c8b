"""
Classify an image and explain the prediction
============================================

Predict the class of an image, and draw a heatmap of the regions that support the prediction::

    python examples/01_classify_and_explain.py

The preset ``vit_digits`` and the image come with keras_vit. Use your own image (a file, an array or
a PIL image) and any model of ``keras-vit list``: ``vit_b16.augreg_i21k_ft_i1k_384`` knows the
thousand classes of ImageNet.
"""

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import keras_vit

model = keras_vit.VisionTransformer.from_preset("vit_digits")
photo = Image.open(keras_vit.data.example_image())

# %%
# ``classify`` prepares the image as in training, and returns the most probable classes.

answer = model.classify(photo, top=3)[0]
for label, probability in answer:
    print(f"{label}: {probability:.1%}")

# %%
# A heatmap shows which patches are evidence for a class. Each class has a different heatmap.

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
# :doc:`/explain` compares the methods, and says how to measure which heatmap to trust.
