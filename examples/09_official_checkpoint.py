"""
Load and save an official checkpoint
====================================

Load an npz file of the official ViT code at another image size, and save the model in that format::

    python examples/09_official_checkpoint.py ViT-B_16.npz mine.npz
"""

import sys

import numpy as np

import keras_vit

source, destination = sys.argv[1:]
summary = keras_vit.info(source)
print(f"{summary.family} names, {summary.num_parameters:,} parameters")

# Position embeddings are resized to the new image size.
model = keras_vit.VisionTransformer.from_preset(source, image_size=32)
logits = model.predict(np.zeros((1, 32, 32, model.config.channels)), verbose=0)
print("largest logit of a gray image:", logits.max())

keras_vit.checkpoints.save(model, destination, family="google")
