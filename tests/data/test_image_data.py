"""The images and labels of a batch, with and without augmentation, and the parts of a split."""

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.data import AUGREG, Augmentation, from_arrays, from_folder
from tests.data.runs import trained_on
from tests.helpers import tiny

GREY = Preprocessor(8, channels=1)


def test_every_form_of_pixels_gives_the_batch_of_the_preprocessor():
    """Grey images need no axis of channels; floats may range from 0 to 255 or from 0 to 1.

    Labels are int32, or float32 one-hot rows.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8), "uint8")
    pictures = [Image.fromarray(image) for image in pixels]
    floats = pixels.astype("float32")
    for images in (pixels, pixels[..., None], pictures, floats, floats / 255):
        options = {"one_hot": images is pictures, "augmentation": "none"}
        data = from_arrays(images, np.arange(6) % 3, GREY, **options)
        np.testing.assert_array_equal(data[0][0], GREY(pixels))
        labels = np.eye(3, dtype="float32")[data.labels] if data.one_hot else data.labels
        np.testing.assert_array_equal(data[0][1], labels, strict=True)
    assert data.class_names == ("0", "1", "2")


@pytest.mark.parametrize("name", AUGREG)
def test_augmented_images_have_the_models_shape_and_range(folder, name):
    """One, three and four channels; channels first too."""
    for channels in {"medium1": (1, 3), "crop_flip": (4,)}.get(name, (3,)):
        preprocessor = Preprocessor(16, channels, data_format="channels_first")
        images, labels = from_folder(folder, preprocessor, 8, augmentation=name)[0]
        assert (images.shape, images.dtype) == ((8, channels, 16, 16), "float32")
        assert -1 <= images.min() < images.max() <= 1
        assert labels.ndim == (2 if AUGREG[name].mixes else 1)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
@pytest.mark.parametrize("task", ["single_label", "regression"])
def test_labels_are_mixed_as_the_images_are(kind, task):
    """Every image is of one value, which its label tells; numbers are mixed as classes are."""
    pixels = np.arange(8, dtype="uint8")[:, None, None, None] * np.full((16, 16, 3), 30, "uint8")
    values = np.arange(8) * 30
    labels = values if task == "regression" else np.arange(8)
    changes = Augmentation(crop=None, flip=False, **{kind: 1.0})
    data = from_arrays(pixels, labels, Preprocessor(16), 8, augmentation=changes, task=task)
    assert data.one_hot == (task == "single_label")
    images, mixed = data[0]
    if data.one_hot:
        np.testing.assert_allclose(mixed.sum(axis=1), 1, atol=1e-6)
        mixed = (mixed @ values)[:, None]
    assert mixed.shape == (8, 1)
    assert not set(mixed[:, 0].tolist()) <= set(values.tolist())
    means = (images.mean(axis=(1, 2, 3)) + 1) * 127.5
    np.testing.assert_allclose(mixed[:, 0], means, atol=1e-3)


def test_a_split_augments_the_training_part_alone(folder):
    """Each class is shared between both parts; validation keeps its order."""
    data = from_folder(folder, Preprocessor(16), 4, augmentation="light2", steps_per_epoch=9)
    train, validation = data.hold_out(0.5)
    assert (len(train), len(validation)) == (9, 2)
    assert train.class_counts == validation.class_counts == {"cat": 3, "dog": 2, "eel": 1}
    assert train.one_hot and validation.one_hot
    assert (train.augmentation, validation.augmentation) == (AUGREG["light2"], None)
    shown = [labels.argmax(1) for _, labels in validation]
    np.testing.assert_array_equal(np.concatenate(shown), [0, 0, 0, 1, 1, 2])


def test_training_data_keep_their_shard_and_validation_data_are_whole():
    images = np.random.default_rng(0).integers(0, 256, (29, 8, 8), "uint8")

    def parts(shard):
        options = {"shuffle": True, "shard": shard}
        return from_arrays(images, np.arange(29) % 3, GREY, 8, **options).hold_out(0.3)

    (train, validation), (whole, expected) = parts((1, 2)), parts((0, 1))
    np.testing.assert_array_equal(train[0][0], whole[0][0][4:])
    np.testing.assert_array_equal(validation[0][0], expected[0][0])


def test_class_weights_are_the_balanced_weights_of_scikit_learn(folder):
    """`fit` accepts them as `class_weight`; a class without images has none."""
    from sklearn.utils.class_weight import compute_class_weight

    data = from_folder(folder, Preprocessor(4, channels=1))
    expected = compute_class_weight("balanced", classes=np.arange(3), y=data.labels)
    np.testing.assert_allclose(list(data.class_weight.values()), expected)
    assert trained_on(data, epochs=1, shuffle=False, class_weight=data.class_weight)
    model = tiny(num_classes=4, class_names=("cat", "dog", "eel", "fox"))
    data = from_folder(folder, model)
    assert data.class_counts == {"cat": 6, "dog": 4, "eel": 2, "fox": 0}
    np.testing.assert_allclose(list(data.class_weight.values()), expected)
