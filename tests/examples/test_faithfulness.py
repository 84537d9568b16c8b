"""Deletion and insertion of examples/paper/faithfulness.py, pixel by pixel."""

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.special import softmax

from keras_vit.explanation.curves import blur
from tests.examples import load
from tests.helpers import assert_close, random_tiny
from tests.plain import normal

EXAMPLE = load("paper/faithfulness.py")
deletion, insertion = EXAMPLE["deletion"], EXAMPLE["insertion"]


def shares(model, image):
    return softmax(model.predict(image[None], verbose=0)[0].astype("float64"))


def test_deletion_takes_pixels_by_importance():
    """In each step a quarter of the pixels becomes grey, in the order of the map; of a model with
    channels first too."""
    model = random_tiny(data_format="channels_first")
    images, importance = normal(1, 16, 16, 3), normal(1, 16, 16, seed=1)
    curve = deletion(model, np.moveaxis(images, -1, 1), importance, 2, steps=4)
    order, expected = np.argsort(-importance.ravel()), []
    for count in (0, 64, 128, 192, 256):
        gone = images[0].reshape(-1, 3).copy()
        gone[order[:count]] = 0
        expected.append(shares(model, gone.T.reshape(3, 16, 16))[2])
    assert_close(curve.probabilities[0], np.array(expected))
    np.testing.assert_allclose(curve.shares, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.areas[0], np.trapezoid(expected, dx=0.25), rtol=1e-5)


def test_insertion_is_deletion_by_the_reversed_order():
    """With the same baseline. Without a target, curves follow the prediction for the whole image,
    not for the blurred one."""
    model, images, maps = random_tiny(), normal(3, 16, 16, 3), normal(3, 16, 16, seed=1)
    inserted = insertion(model, images, maps, 1, baseline=0, steps=4)
    deleted = deletion(model, images, -maps, 1, baseline=0, steps=4)
    assert_close(inserted.probabilities, deleted.probabilities[:, ::-1])
    whole = np.array([shares(model, image).max() for image in images])
    assert_close(deletion(model, images, maps).probabilities[:, 0], whole)
    assert_close(insertion(model, images, maps).probabilities[:, -1], whole)


def test_the_blur_equals_the_gaussian_filter_of_scipy():
    """With the same cut-off distance."""
    images, options = normal(2, 224, 112, 1), {"mode": "nearest", "radius": (6, 4)}
    expected = [gaussian_filter(image[..., 0], (5, 4), **options) for image in images]
    assert_close(blur(random_tiny(), images)[..., 0], np.array(expected))
