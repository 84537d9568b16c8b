"""
Fine-tune on TensorFlow Datasets
================================

Fine-tune on a data set of TensorFlow Datasets: here digits, made on the spot::

    python examples/03_fine_tune_on_tfds.py

The paper's CIFAR-10 (table 4; ViT-B/16 from ImageNet-21k reaches 98.95 % there, table 5) is::

    model = VisionTransformer.from_preset("vit_b16.orig_i21k_224", num_classes=10, image_size=384)
    train = from_tfds("cifar10", model, 512, split="train[:98%]", augmentation="none",
                      steps_per_epoch=100)
    test = from_tfds("cifar10", model, 64, split="test")
    recipe = transfer_recipe(model, 10_000, batch_size=512, learning_rate=0.03,
                             steps_per_epoch=100)  # of 0.001, 0.003, 0.01 and 0.03 the best
"""

from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from sklearn.datasets import load_digits

from keras_vit import VisionTransformer
from keras_vit.data import Augmentation, from_tfds
from keras_vit.finetune import transfer_recipe

steps = 40
folder = Path("tensorflow_datasets")

# A data set of one's own: what `tfds new` makes a file for, in a few lines.
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

model = VisionTransformer.from_preset("vit_digits", num_classes=2, labels=("5 to 9", "0 to 4"))
shifts = Augmentation(crop=(0.6, 1.0), flip=False)  # a digit has a left and a right
train = from_tfds(
    "small_digits", model, data_dir=folder, augmentation=shifts, steps_per_epoch=steps
)
test = from_tfds("small_digits", model, split="test", data_dir=folder)

recipe = transfer_recipe(model, steps, train.batch_size)
model.compile(**recipe.compile_args)
model.fit(train, **{"verbose": 2, "shuffle": False, **recipe.fit_args})
print(dict(zip(model.metrics_names, model.evaluate(test, verbose=0), strict=False)))
