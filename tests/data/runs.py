"""Data sets whose labels identify the images, tables of labels, and models that record images."""

import keras
import numpy as np

from keras_vit import Preprocessor
from keras_vit.data import from_arrays, from_folder

PLAIN = Preprocessor(16)
COLUMNS = "path,cat,dog,eel\na.png,1,1,0\nb.png,0,1,0\nmore/c.png,0,0,0.0\nd.png,0,0,1.0\n"
AGES = "path,age,height\na.png,34.5,1\nb.png,8,2\nmore/c.png,-1e3,3\nd.png,0.25,4\n"
AGE = "path,age\na.png,34.5\nb.png,8\nmore/c.png,-1e3\nd.png,0.25\n"


def read_table(photos, text, name="labels.csv", prepares=PLAIN, **options):
    """The photographs of a `World` with the labels of a table."""
    (photos / name).write_text(text)
    return from_folder(photos, prepares, labels_file=name, **options)


def read_numbers(photos, text=AGES, **options):
    """The photographs with a table of numbers, for regression."""
    return read_table(photos, text, **{"task": "regression", **options})


def masked(world, content=None, prepares=PLAIN, name="a.png", **options):
    """The photographs of a `World` with its masks, one of which is an image or array if given."""
    if isinstance(content, np.ndarray):
        (world.masks / name).unlink()
        np.save((world.masks / name).with_suffix(".npy"), content)
    elif content is not None:
        content.save(world.masks / name)
    options = {"task": "segmentation", "class_names": "abcd", "targets": world.masks, **options}
    return from_folder(world.photos, prepares, **options)


def numbered(count=20, batch_size=4, **options):
    """Images labelled by their index, which is also their first pixel."""
    images = np.random.default_rng(0).integers(0, 256, (count, 4, 4, 1), "uint8")
    images[:, 0, 0, 0] = np.arange(count)
    return from_arrays(images, np.arange(count), Preprocessor(4, 1), batch_size, **options)


def read_epochs(data, count):
    """The labels of each batch of the first `count` epochs, read by index."""
    batches = []
    for epoch in range(count):
        data.epoch = epoch
        batches += [data[i][1].tolist() for i in range(len(data))]
    data.epoch = 0
    return batches


class Seen(keras.layers.Layer):
    """Records the numbers of the images of each training batch."""

    def call(self, images, training=False):
        if training:
            corners = keras.ops.convert_to_numpy(images)[:, 0, 0, 0]
            SEEN.append(np.rint(127.5 * corners + 127.5).tolist())
        return images


SEEN: list[list[float]] = []


def small_model(data, **options):
    """A compiled model with one Dense layer."""
    head = keras.layers.Dense(data.num_classes, "softmax", name="dense")
    model = keras.Sequential([Seen(), keras.layers.Flatten(), head])
    model.build((None, 4, 4, 1))
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True, **options)
    return model


def fit(model, data, **options):
    """The labels of each batch that a training step of `fit` receives."""
    SEEN.clear()
    model.fit(data, **{"verbose": 0, "shuffle": False, **options})
    return SEEN.copy()


def trained_on(data, **options):
    """The labels of each batch that a new model trains on."""
    return fit(small_model(data), data, **options)
