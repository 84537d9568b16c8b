"""Images in the user's form and a prepared batch of them give the same features and scores."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from keras_vit import evaluate
from keras_vit.errors import ConfigError
from keras_vit.evaluation import features
from tests.helpers import random_tiny


@pytest.fixture(scope="module")
def model():
    return random_tiny(num_classes=3)


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (5, 20, 24, 3), "uint8")


LABELS = np.array([0, 1, 2, 1, 0])


@pytest.fixture(params=["array", "list", "paths", "pictures"])
def images(request, pixels, tmp_path):
    """The images as people have them, of another size than the model's."""
    pictures = [Image.fromarray(image) for image in pixels]
    paths = [tmp_path / f"{k}.png" for k in range(len(pixels))]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    forms = {"array": pixels, "list": list(pixels), "paths": paths, "pictures": pictures}
    return forms[request.param]


def test_images_of_any_form_are_prepared(model, pixels, images):
    """The model's protocol resizes and scales them, as in `classify`."""
    prepared = model.preprocessor(pixels)
    expected = features(model, prepared, batch_size=2, prepared=True).values
    np.testing.assert_array_equal(features(model, images, batch_size=2).values, expected)
    wanted = evaluate(model, (prepared, LABELS), batch_size=5, prepared=True)
    assert evaluate(model, (images, LABELS), batch_size=5) == wanted


def test_the_cache_knows_files_and_how_they_are_read(model, pixels, images, tmp_path):
    """Features of the same images are read; another range of the pixels computes them anew."""
    changes = ({}, {}, {"pixel_range": (0, 100)}, {"draft": True})
    for count, change in zip((1, 1, 2, 3), changes, strict=True):
        changed = dataclasses.replace(model.preprocessor, **change)
        original, model.preprocessor = model.preprocessor, changed
        features(model, images, cache=tmp_path / "cache")
        model.preprocessor = original
        assert len(list((tmp_path / "cache").glob("*.npy"))) == count


def test_pixels_as_floats_are_images(model, pixels):
    floats = features(model, pixels.astype("float32")).values
    np.testing.assert_array_equal(floats, features(model, pixels).values)


def test_labels_of_another_number_are_refused(model, images):
    for labels in (LABELS[1:], [0, *LABELS]):
        with pytest.raises(ConfigError, match=r"5 images and \d labels"):
            evaluate(model, (images, labels), batch_size=2)
