"""Classify image files with a preset or a checkpoint file.

python examples/01_classify_an_image.py digit.png
"""

import sys

import keras_vit

model = keras_vit.VisionTransformer.from_preset("vit_digits")
for path, answer in zip(sys.argv[1:], model.classify(sys.argv[1:], top=3), strict=True):
    print(path, ", ".join(f"{label} ({probability:.1%})" for label, probability in answer))
