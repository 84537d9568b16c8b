"""
An official checkpoint
======================

Read an npz file of the official code at another resolution, and write it back::

    python examples/09_official_checkpoint.py ViT-B_16.npz mine.npz
"""

import sys

import numpy as np

import keras_vit

source, destination = sys.argv[1:]
summary = keras_vit.info(source)
print(f"{summary.family} names, {summary.num_parameters:,} parameters")

# Position embeddings are resized.
model = keras_vit.VisionTransformer.from_preset(source, image_size=32)
logits = model.predict(np.zeros((1, 32, 32, model.config.channels)), verbose=0)
print("largest logit of a grey image:", logits.max())

keras_vit.checkpoints.save(model, destination, family="google")
