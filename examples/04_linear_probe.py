"""
Linear probing and few-shot accuracy
====================================

Train linear classifiers on the features of a frozen model, to measure how good the features are::

    python examples/04_linear_probe.py
"""

import numpy as np
from sklearn.datasets import load_digits

import keras_vit

model = keras_vit.VisionTransformer.from_preset("vit_digits")
digits = load_digits()
images = np.round(digits.images * (255 / 16)).astype("uint8")[..., None]  # (1797, 8, 8, 1)
has_loop = np.isin(digits.target, (0, 6, 8, 9)).astype("int32")

# The input of the head for every image, computed once and stored on disk.
train = keras_vit.evaluation.features(model, (images[:1400], has_loop[:1400]), cache="features")
test = keras_vit.evaluation.features(model, (images[1400:], has_loop[1400:]), cache="features")

# Section 4.1 and Figure 4 of the ViT paper: regularized least squares onto targets of -1 and 1.
for shots, accuracies in keras_vit.evaluation.few_shot(train, test, shots=(1, 5, 10)).items():
    print(f"{shots:2} images per class: {np.mean(accuracies):.1%} +- {np.std(accuracies):.1%}")

probe = keras_vit.evaluation.linear_probe(train.values, train.labels)
print(f"linear probe, l2={probe.l2:g}: {probe.accuracy(test.values, test.labels):.1%}")

# The probe becomes the head of an ordinary classifier, which you can save or fine-tune.
classifier = probe.build_model(model, class_names=("open", "with a loop"))
scores = keras_vit.evaluate(classifier, (images[1400:], has_loop[1400:]))
print(f"as a model: {scores.top1:.1%}")
classifier.save_to_preset("loops-by-a-probe")
