"""
Zero-shot classification
========================

Classify images by text embeddings, without training::

    python examples/11_zero_shot_classification.py

CLIP and SigLIP were trained to give a photo and its description similar embeddings. Compute the
text embeddings with transformers (:doc:`/families` has the code); ``head_from_embeddings`` makes
them the head of the vision model. This program needs no download: instead of text embeddings it
uses the features of a few images per class.
"""

import numpy as np
from sklearn.datasets import load_digits

import keras_vit

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

model = keras_vit.VisionTransformer.from_preset("vit_digits")
digits = load_digits()
images = np.round(digits.images * (255 / 16)).astype("uint8")[..., None]
features = keras_vit.evaluation.features(model, images).values

# %%
# A ``.npz`` or ``.safetensors`` file contains one array per class. Here each has five embeddings,
# as if from five prompts, which are averaged as in CLIP.

embeddings = {word: features[:500][digits.target[:500] == k][:5] for k, word in enumerate(WORDS)}
np.savez("words.npz", **embeddings)

# %%
# The logits are ``scale`` times the cosine similarity of image and class. CLIP and SigLIP
# checkpoints contain their scale.

classifier = model.head_from_embeddings("words.npz", scale=20.0)
print(classifier.classify(keras_vit.data.example_image(), top=3))
score = keras_vit.evaluate(classifier, (images[500:], digits.target[500:]))
print(f"accuracy on {score.count} images, with five embeddings per class: {score.top1:.1%}")

# %%
# Other classes give another classifier with the same encoder.

few = model.head_from_embeddings({w: embeddings[w] for w in ("one", "seven")}, scale=20.0)
print(few.classify(keras_vit.data.example_image(), top=2))
