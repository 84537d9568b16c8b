"""
Train on TensorFlow Datasets
============================

Load a data set of TensorFlow Datasets and fine-tune on it. This program first builds a small one::

    python examples/03_fine_tune_on_tfds.py

For CIFAR-10 as in table 4 of the ViT paper, where ViT-B/16 reaches 98.95 %, write::

    model = VisionTransformer.from_preset("vit_b16.orig_i21k_224", num_classes=10, image_size=384)
    recipe = TransferRecipe(10_000, batch_size=512, learning_rate=0.03, augmentation="crop_flip",
                            steps_per_epoch=100)  # the best of 0.001, 0.003, 0.01 and 0.03
    train = from_tfds("cifar10", model, split="train[:98%]", **recipe.data_args)
    test = from_tfds("cifar10", model, 64, split="test")
"""

from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from sklearn.datasets import load_digits

from keras_vit import VisionTransformer
from keras_vit.data import Augmentation, from_tfds
from keras_vit.training import TransferRecipe

steps = 40
folder = Path("tensorflow_datasets")

# A small data set of digits; usually TFDS downloads one.
digits = load_digits()
rows = [
    (k, {"image": np.round(image * (255 / 16)).astype("uint8")[..., None], "label": int(digit < 5)})
    for k, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True))
]
tfds.dataset_builders.AdhocBuilder(
    name="small_digits",
    version="1.0.0",
    features=tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(8, 8, 1)),
            "label": tfds.features.ClassLabel(names=["5 to 9", "0 to 4"]),
        }
    ),
    split_datasets={"train": rows[:1440], "test": rows[1440:]},
    data_dir=folder,
    file_format="array_record",  # read without TensorFlow, image by image
).download_and_prepare()

model = VisionTransformer.from_preset("vit_digits", num_classes=2, class_names=("5 to 9", "0 to 4"))
shifts = Augmentation(crop=(0.6, 1.0), flip=False)  # a mirrored digit is not a digit
train = from_tfds(
    "small_digits", model, data_dir=folder, augmentation=shifts, steps_per_epoch=steps
)
test = from_tfds("small_digits", model, split="test", data_dir=folder)

recipe = TransferRecipe(steps, train.batch_size)
model.compile(**recipe.compile_args(model))
model.fit(train, **{"verbose": 2, "shuffle": False, **recipe.fit_args(model)})
print(dict(zip(model.metrics_names, model.evaluate(test, verbose=0), strict=False)))
