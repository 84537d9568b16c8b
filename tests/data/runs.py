"""Data sets whose labels identify the images, tables of labels, and models that record labels."""

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


def numbered(count=20, batch_size=4, **options):
    """Images labelled by their index, so that a batch shows which images it holds."""
    images = np.random.default_rng(0).integers(0, 256, (count, 6, 6, 1), "uint8")
    preprocessor = Preprocessor(4, channels=1)
    return from_arrays(images, np.arange(count), preprocessor, batch_size, **options)


def read_epochs(data, count):
    """The labels of each batch of the first `count` epochs, read by index."""
    batches = []
    for epoch in range(count):
        data.epoch = epoch
        batches += [data[i][1].tolist() for i in range(len(data))]
    data.epoch = 0
    return batches


class Seen(keras.metrics.Metric):
    """A metric that records the labels of each training batch."""

    def __init__(self):
        super().__init__()
        self.batches = []
        self.training = False

    def update_state(self, y_true, y_pred, sample_weight=None):
        if self.training:  # Keras also calls the metric while it traces the model
            self.batches.append(keras.ops.convert_to_numpy(y_true).ravel().tolist())

    def result(self):
        return keras.ops.zeros(())

    def reset_state(self):
        pass


def small_model(data, **options):
    """A compiled model with one Dense layer; `model.seen` records its training batches."""
    model = keras.Sequential(
        [keras.layers.Flatten(), keras.layers.Dense(data.num_classes, name="dense")]
    )
    model.build((None, 4, 4, 1))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.seen = Seen()
    model.compile("sgd", loss, metrics=[model.seen], run_eagerly=True, **options)
    return model


class _Notes(keras.callbacks.Callback):
    """Switches the metric `Seen` on for training alone: not for tracing or validation."""

    def on_train_begin(self, logs=None):
        self.model.seen.training = True

    def on_test_begin(self, logs=None):
        self.model.seen.training = False

    def on_test_end(self, logs=None):
        self.model.seen.training = True


def fit(model, data, **options):
    """The labels of each batch that a training step of `fit` receives."""
    callbacks = [_Notes(), *options.pop("callbacks", ())]
    model.seen.batches = []
    model.fit(data, **{"verbose": 0, "shuffle": False, "callbacks": callbacks, **options})
    model.seen.training = False
    return model.seen.batches


def trained_on(data, **options):
    """The labels of each batch that a new model trains on."""
    return fit(small_model(data), data, **options)
