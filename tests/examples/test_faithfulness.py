"""Deletion and insertion of examples/paper/faithfulness.py, pixel by pixel."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from keras_vit import explain
from keras_vit.errors import ConfigError
from keras_vit.explanation.curves import blur
from tests.helpers import assert_close, random_tiny
from tests.plain import normal

FILE = Path(__file__).parents[2] / "examples" / "paper" / "faithfulness.py"
EXAMPLE = runpy.run_path(str(FILE))
deletion, insertion = EXAMPLE["deletion"], EXAMPLE["insertion"]


def compute_softmax(model, image):
    return softmax(model.predict(image[None], verbose=0)[0].astype("float64"))


@pytest.mark.parametrize("channels_first", [False, True])
def test_deletion_takes_pixels_by_importance(channels_first):
    """In each step a quarter of the pixels becomes grey, in the order of the map."""
    fields = {"data_format": "channels_first"} if channels_first else {}
    model = random_tiny(**fields)
    image = normal(1, 16, 16, 3)
    importance = normal(1, 16, 16, seed=1)
    curve = deletion(
        model, np.moveaxis(image, -1, 1) if channels_first else image, importance, 2, steps=4
    )
    order = np.argsort(-importance.ravel())
    expected = []
    for count in (0, 64, 128, 192, 256):
        gone = image[0].reshape(-1, 3).copy()
        gone[order[:count]] = 0
        gone = gone.reshape(16, 16, 3)
        expected.append(
            compute_softmax(model, np.moveaxis(gone, -1, 0) if channels_first else gone)[2]
        )
    assert_close(curve.probabilities[0], np.array(expected))
    np.testing.assert_allclose(curve.shares, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.areas[0], np.trapezoid(expected, dx=0.25), rtol=1e-5)


def test_insertion_is_deletion_by_the_reversed_order():
    """With the same baseline."""
    model, images, maps = random_tiny(), normal(3, 16, 16, 3), normal(3, 16, 16, seed=1)
    inserted = insertion(model, images, maps, 1, baseline=0, steps=4)
    deleted = deletion(model, images, -maps, 1, baseline=0, steps=4)
    assert_close(inserted.probabilities, deleted.probabilities[:, ::-1])


def test_without_a_target_the_curves_follow_the_models_prediction():
    """Not the prediction for the blurred image."""
    model, images, maps = random_tiny(), normal(3, 16, 16, 3), normal(3, 16, 16, seed=1)
    whole = np.array([compute_softmax(model, image).max() for image in images])
    assert_close(deletion(model, images, maps).probabilities[:, 0], whole)
    assert_close(insertion(model, images, maps).probabilities[:, -1], whole)


def test_the_blur_equals_the_gaussian_filter_of_scipy():
    """With the same cut-off distance."""
    from scipy.ndimage import gaussian_filter

    images = normal(2, 224, 112, 1)
    expected = [
        gaussian_filter(image[..., 0], (5, 4), mode="nearest", radius=(6, 4)) for image in images
    ]
    assert_close(blur(random_tiny(), images)[..., 0], np.array(expected))


def test_compare_methods_gives_the_mean_areas_of_methods_and_baselines():
    """Of deletion and of insertion."""
    model, images = random_tiny(), normal(2, 16, 16, 3)
    areas = EXAMPLE["compare_methods"](model, images, 3, ("relevance", "rollout"), steps=4)
    assert list(areas) == ["relevance", "rollout", "random", "centre"]
    maps = explain(model, images, 3, "relevance", prepared=True).maps
    assert areas["relevance"].deletion == deletion(model, images, maps, 3, steps=4).areas.mean()
    assert areas["relevance"].insertion == insertion(model, images, maps, 3, steps=4).areas.mean()


@pytest.mark.parametrize(
    ("maps", "steps", "message"),
    [(np.zeros((2, 8, 8)), 4, "maps has the shape"), (np.zeros((2, 16, 16)), 0, "steps=0")],
)
def test_bad_arguments_of_insertion_are_refused(maps, steps, message):
    with pytest.raises(ConfigError, match=message):
        insertion(random_tiny(), normal(2, 16, 16, 3), maps, steps=steps)
