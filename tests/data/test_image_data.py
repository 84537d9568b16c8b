"""A batch is a function of seed, epoch and index, whatever reads it."""

import pickle
import re
import threading

import numpy as np
import pytest

from keras_vit import Preprocessor
from keras_vit.data import AUGREG, Augmentation, from_arrays, from_folder
from keras_vit.data.pipeline import Pipeline
from keras_vit.errors import ConfigError
from tests.data.runs import numbered, trained_on

EVERYTHING = Augmentation(randaugment=(2, 15), mixup=0.5, cutmix=1.0)


@pytest.mark.parametrize("augmentation", [None, "strong2", EVERYTHING], ids=["", "strong2", "all"])
def test_batches_depend_on_seed_epoch_and_index_alone(folder, augmentation):
    """The order of reading, threads, the cache and earlier reads make no difference."""

    def made(**options):
        options = {"augmentation": augmentation, "seed": 7, "shuffle": True, **options}
        return from_folder(folder, Preprocessor(16), 5, **options)

    data = made()
    data.epoch = 2
    batches = [data[i] for i in range(len(data))]
    other = made(cache=False, threads=1)
    for i in (1, 0, 2, 1):
        other[i]
    other.epoch = 2
    for i in (2, 0, 1):
        for actual, expected in zip(other[i], batches[i], strict=True):
            np.testing.assert_array_equal(actual, expected)
    assert not np.array_equal(made(seed=8)[0][0], made()[0][0])
    data.epoch = 3
    assert not np.array_equal(data[0][0], batches[0][0])


def test_the_last_batch_of_a_pass_may_be_smaller():
    """With `steps_per_epoch`, the next pass fills the batch instead."""
    assert [len(labels) for _, labels in numbered(10)] == [4, 4, 2]
    assert [len(labels) for _, labels in numbered(10, steps_per_epoch=4)] == [4, 4, 4, 4]


@pytest.mark.parametrize("augmentation", [None, "none"])
def test_data_without_augmentation_are_the_output_of_the_preprocessor(folder, augmentation):
    """Bit for bit, with images in the order of the files."""
    preprocessor = Preprocessor(16, protocol="timm")
    data = from_folder(folder, preprocessor, 12, augmentation=augmentation)
    images, labels = data[0]
    paths = sorted(p for p in folder.rglob("*.*") if p.suffix.lower() in (".png", ".jpg"))
    in_class = {name: [p for p in paths if name in p.parts] for name in data.class_names}
    ordered = [p for part in in_class.values() for p in sorted(part, key=lambda p: len(p.parts))]
    np.testing.assert_array_equal(images, preprocessor(ordered))
    assert labels.tolist() == [0] * 6 + [1] * 4 + [2] * 2
    assert labels.dtype == np.int32


def test_augmented_images_have_the_models_shape_and_range(folder):
    """Every AugReg setting; one, three and four channels; channels first too."""
    for name, channels, data_format in (
        *((name, 3, "channels_last") for name in AUGREG),
        ("medium1", 1, "channels_first"),
        ("crop_flip", 4, "channels_last"),
    ):
        preprocessor = Preprocessor(16, channels, data_format=data_format)
        images, labels = from_folder(folder, preprocessor, 8, augmentation=name)[0]
        last = (8, 16, 16, channels)
        assert images.shape == (last if data_format == "channels_last" else (8, channels, 16, 16))
        assert images.dtype == np.float32
        assert -1 <= images.min() < images.max() <= 1
        assert labels.ndim == (2 if AUGREG[name].mixes else 1)


def test_mixup_weighs_labels_as_it_weighs_images():
    """Images whose pixels encode their label still do so after mixup."""
    images = np.repeat(np.arange(4, dtype="uint8") * 10, 16).reshape(4, 4, 4, 1)
    plain = Augmentation(crop=None, flip=False, mixup=1.0)
    data = from_arrays(images, np.arange(4), Preprocessor(4, channels=1), 4, augmentation=plain)
    pixels, labels = data[0]
    mixed = labels @ np.arange(4) * 10
    np.testing.assert_allclose(pixels[:, 0, 0, 0] * 127.5 + 127.5, mixed, atol=1e-4)
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)


def test_one_hot_labels_encode_the_integer_labels():
    """Float32 rows whose largest entry is the label."""
    labels = numbered(one_hot=True)[1][1]
    assert labels.dtype == np.float32
    assert labels.argmax(axis=1).tolist() == numbered()[1][1].tolist()


def test_a_split_augments_the_training_part_alone(folder):
    """Each class is shared between both parts; validation keeps its order."""
    data = from_folder(folder, Preprocessor(16), 4, augmentation="light2", steps_per_epoch=9)
    for share in (1.5, "x"):
        message = f"validation must be a number between 0 and 1, found {share!r}"
        with pytest.raises(ConfigError, match=re.escape(message)):
            data.hold_out(share)
    train, validation = data.hold_out(0.5)
    assert (len(train), len(validation)) == (9, 2)
    assert train.class_counts == {"cat": 3, "dog": 2, "eel": 1}
    assert validation.class_counts == {"cat": 3, "dog": 2, "eel": 1}
    assert train.one_hot
    assert validation.one_hot
    assert validation.augmentation is None
    np.testing.assert_array_equal(validation.labels, [0, 0, 0, 1, 1, 2])
    shown = [labels.argmax(1) for _, labels in validation]
    np.testing.assert_array_equal(np.concatenate(shown), validation.labels)


def test_class_weights_are_the_balanced_weights_of_scikit_learn(folder):
    """`fit` accepts them as `class_weight`."""
    from sklearn.utils.class_weight import compute_class_weight

    data = from_folder(folder, Preprocessor(4, channels=1))
    expected = compute_class_weight("balanced", classes=np.arange(3), y=data.labels)
    np.testing.assert_allclose(list(data.class_weight.values()), expected)
    assert trained_on(data, epochs=1, shuffle=False, class_weight=data.class_weight)


def test_threads_prepare_the_next_two_batches_ahead(monkeypatch):
    """Reading the last two batches of epoch 0 prepares a third batch without a request."""
    ahead, prepare = threading.Event(), Pipeline.part

    def noting(pipeline, number):
        if number // pipeline.num_parts == 5:
            ahead.set()
        return prepare(pipeline, number)

    monkeypatch.setattr(Pipeline, "part", noting)
    data = numbered()
    data[3]
    data[4]
    assert ahead.wait(10)


def test_reading_an_attribute_in_the_middle_of_an_epoch_changes_no_batch():
    """Every public attribute that is no method, and the methods that return other data."""
    options = {"augmentation": EVERYTHING, "shuffle": True, "seed": 5}
    data, untouched = numbered(**options), numbered(**options)
    names = [name for name in dir(data) if not name.startswith("_")]
    for _ in range(3):
        for each in (data, untouched):
            each.on_epoch_begin()
        for i in range(len(data)):
            for name in names:
                getattr(data, name)
            data.with_steps_per_epoch(3)[0], data.to_grain(2)[0], len(data)
            for actual, expected in zip(data[i], untouched[i], strict=True):
                np.testing.assert_array_equal(actual, expected)
        for each in (data, untouched):
            each.on_epoch_end()
    assert data.epoch == untouched.epoch == 3


def test_pickled_data_continue_with_the_batches_of_the_epoch(folder):
    """The copy reads ahead by threads of its own."""
    data = from_folder(folder, Preprocessor(16), 5, augmentation=EVERYTHING, seed=3)
    data.epoch = 2
    data[0]
    copied = pickle.loads(pickle.dumps(data))
    assert copied.epoch == 2
    for i in range(len(data)):
        for actual, expected in zip(copied[i], data[i], strict=True):
            np.testing.assert_array_equal(actual, expected)
