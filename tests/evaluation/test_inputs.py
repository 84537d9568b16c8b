"""Images in the user's form and a prepared batch of them give the same features and scores."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from keras_vit import evaluate
from keras_vit.evaluation import features

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 20, 24, 3), "uint8")
LABELS = np.array([0, 1, 2, 1, 0])


@pytest.mark.parametrize("form", ["array", "floats", "list", "paths", "pictures"])
def test_images_of_any_form_are_prepared(form, model, tmp_path):
    """The model's protocol resizes and scales them, as in `classify`; the cache knows files and
    how they are read."""
    pictures = [Image.fromarray(image) for image in PIXELS]
    paths = [tmp_path / f"{k}.png" for k in range(len(PIXELS))]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    forms = {"array": PIXELS, "floats": PIXELS.astype("float32"), "list": list(PIXELS)}
    images = {**forms, "paths": paths, "pictures": pictures}[form]
    prepared = model.preprocessor(PIXELS)
    expected = features(model, prepared, batch_size=2, prepared=True).values
    np.testing.assert_array_equal(features(model, images, batch_size=2).values, expected)
    wanted = evaluate(model, (prepared, LABELS), batch_size=5, prepared=True)
    assert evaluate(model, (images, LABELS), batch_size=5) == wanted
    original = model.preprocessor
    changes = ({}, {}, {"pixel_range": (0, 100)}, {"draft": True})
    for count, change in zip((1, 1, 2, 3), changes, strict=True):
        model.preprocessor = dataclasses.replace(original, **change)
        features(model, images, cache=tmp_path / "cache")
        model.preprocessor = original
        assert len(list((tmp_path / "cache").glob("*.npy"))) == count
