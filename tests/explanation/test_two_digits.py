"""Pictures of two test digits side by side: do maps tell the digits apart, and beat guessing?"""

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer, explain
from keras_vit.explanation import compare_methods, share_inside
from tests.digits import digits

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the gradients are compared on every backend"
)


@pytest.fixture(scope="module")
def pictures():
    """vit_digits at 16 x 32 pixels, 40 pictures as it takes them, and the digits of each."""
    model = VisionTransformer.from_preset("vit_digits", image_size=(16, 32))
    _, test, _, classes = digits()
    left, right = np.random.default_rng(0).integers(0, 360, (2, 200))
    keep = classes[left] != classes[right]
    left, right = left[keep][:40], right[keep][:40]
    batch = model.preprocessor(np.concatenate([test[left], test[right]], axis=2))
    return model, batch, (classes[left], classes[right])


def test_the_map_of_a_digit_leans_to_its_half(pictures):
    """In three pictures of four, although the model never saw two digits; docs/explain.md has 93 %
    for one that did."""
    model, batch, (left, right) = pictures
    half = [(0, 0, 16, 16)] * len(batch)
    of_left, of_right = (
        share_inside(explain(model, batch, target).maps, half) for target in (left, right)
    )
    assert np.mean(of_left > of_right) >= 0.75


def test_gradients_beat_random_numbers_and_the_centre(pictures):
    """In deletion and in insertion on black, the digits' own background, for either digit."""
    model, batch, classes = pictures
    for target in classes:
        told = compare_methods(
            model, batch, target, ("relevance", "integrated_gradients"), baseline=-1, steps=8
        )
        for method in ("relevance", "integrated_gradients"):
            for guess in ("random", "centre"):
                assert told[method].deletion < told[guess].deletion
                assert told[method].insertion > told[guess].insertion
