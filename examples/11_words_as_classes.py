"""
Words as classes
================

Classify by embeddings of words, without training (zero-shot)::

    python examples/11_words_as_classes.py

CLIP and SigLIP were trained to bring a photograph and its description near each other. The library
of the text tower embeds the words; ``head_from_embeddings`` makes them the head of the vision
tower. :doc:`/families` has the lines for transformers. This program needs no download: it takes the
features of a few images as the embeddings of a word, in place of a text tower.
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
# A ``.npz`` or ``.safetensors`` file holds an array per word. Here it has five vectors for each
# word, as from five texts, which are averaged as CLIP averages them.

embeddings = {word: features[:500][digits.target[:500] == k][:5] for k, word in enumerate(WORDS)}
np.savez("words.npz", **embeddings)

# %%
# The logits are ``scale`` times the cosine of image and word. Files of CLIP and SigLIP bring their
# own scale.

reader = model.head_from_embeddings("words.npz", scale=20.0)
print(reader.classify(keras_vit.data.example_image(), top=3))
score = keras_vit.evaluate(reader, (images[500:], digits.target[500:]))
print(f"five vectors for each word: {score.top1:.1%} of {score.count} images are right")

# %%
# Other words make another classifier of the same encoder.

few = model.head_from_embeddings({w: embeddings[w] for w in ("one", "seven")}, scale=20.0)
print(few.classify(keras_vit.data.example_image(), top=2))
