"""`from_arrays`: the forms of images it takes, and the arguments it refuses."""

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.data import Augmentation, from_arrays
from keras_vit.errors import ConfigError
from tests.helpers import tiny

GREY = Preprocessor(8, channels=1)
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8), "uint8")
LABELS = np.array([0, 1, 2, 0, 1, 2])


def test_grey_images_need_no_channel_axis():
    """`(images, height, width)` and `(images, height, width, 1)` give the same batch."""
    data = from_arrays(IMAGES, LABELS, GREY)
    np.testing.assert_array_equal(data[0][0], from_arrays(IMAGES[..., None], LABELS, GREY)[0][0])
    np.testing.assert_array_equal(data[0][0], GREY(IMAGES))
    assert data.class_names == ("0", "1", "2")


def test_pil_images_and_float_pixels_give_the_batch_of_uint8_pixels():
    """Float pixels may range from 0 to 255 or from 0 to 1."""
    expected = from_arrays(IMAGES, LABELS, GREY)[0][0]
    pictures = [Image.fromarray(image) for image in IMAGES]
    np.testing.assert_array_equal(from_arrays(pictures, LABELS, GREY)[0][0], expected)
    floats = IMAGES.astype("float32")
    np.testing.assert_array_equal(from_arrays(floats, LABELS, GREY)[0][0], expected)
    np.testing.assert_array_equal(from_arrays(floats / 255, LABELS, GREY)[0][0], expected)


@pytest.mark.parametrize(
    ("images", "labels", "preprocessor", "options", "message"),
    [
        (IMAGES, LABELS, GREY, {"class_names": "ab"}, "label 2 of image 2 is out of range"),
        (IMAGES, LABELS - 1, GREY, {}, "label -1 of image 0 is out of range"),
        (IMAGES, LABELS[:5], GREY, {}, "6 images and 5 labels"),
        (IMAGES, LABELS / 2, GREY, {}, "labels are float64"),
        (IMAGES, ["a", "b", float("nan")] * 2, GREY, {}, "image 2 has the label nan; expected a w"),
        (IMAGES, np.array([None, "a"] * 3), GREY, {}, "image 0 has the label None; expected a wo"),
        (IMAGES, [[0], [1, 2], []] * 2, GREY, {}, "the labels of images differ in length"),
        (IMAGES[:0], LABELS[:0], GREY, {}, "no images"),
        (IMAGES - 300.0, LABELS, GREY, {}, "6 of 6 images cannot be used. image 0: Pixels must be"),
        (IMAGES[0], LABELS, GREY, {}, r"shape \(8, 8\), expected \(images, height"),
        (np.zeros((6, 8, 8, 3), "uint8"), LABELS, GREY, {}, "takes 1 channels, found 3"),
        (IMAGES, LABELS, "me", {}, "expected a keras_vit.Preprocessor or a VisionTransformer"),
        (
            IMAGES,
            LABELS,
            Preprocessor(None, 1),
            {"augmentation": "light1"},
            "image_size, found None",
        ),
        (
            np.zeros((6, 8, 8, 5), "uint8"),
            LABELS,
            Preprocessor(8, channels=5),
            {"augmentation": "light1"},
            "1 or 3 channels, found 5",
        ),
    ],
)
def test_bad_arrays_and_options_are_refused(images, labels, preprocessor, options, message):
    """The error is raised when the data set is made, before the first training step."""
    with pytest.raises(ConfigError, match=message):
        from_arrays(images, labels, preprocessor, **options)


@pytest.mark.parametrize(
    "fields",
    [{"crop": (0.5, 0.1)}, {"aspect": (0, 1)}, {"randaugment": (2, -1)}, {"mixup": -0.1}],
    ids=str,
)
def test_bad_augmentation_fields_are_refused_by_name(fields):
    """A range that is reversed or open to zero, and negative numbers."""
    with pytest.raises(ConfigError, match=next(iter(fields))):
        Augmentation(**fields)


def test_the_labels_of_a_model_become_the_class_names():
    """The data have all classes of the model, also the last class, which has no image."""
    model = tiny(image_size=8, patch_size=4, channels=1, num_classes=4, class_names=tuple("abcd"))
    data = from_arrays(IMAGES, LABELS, model)
    assert data.class_counts == {"a": 2, "b": 2, "c": 2, "d": 0}
    assert data.class_weight == {0: 1.0, 1: 1.0, 2: 1.0}


def test_images_of_five_channels_can_be_cropped_and_flipped():
    """The augmentation "crop_flip" crops and flips arrays of any number of channels."""
    images = np.random.default_rng(0).uniform(0, 255, (6, 9, 9, 5)).astype("float32")
    data = from_arrays(images, LABELS, Preprocessor(8, channels=5), 6, augmentation="crop_flip")
    assert data[0][0].shape == (6, 8, 8, 5)
