"""A number of the wrong type or size is refused by the name of its argument."""

import numpy as np
import pytest

import keras_vit
from keras_vit.errors import ConfigError
from tests.helpers import random_tiny
from tests.plain import normal

IMAGES = 0.1 * normal(2, 16, 16, 3)


@pytest.fixture(scope="module")
def model():
    return random_tiny(num_layers=2)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", [2]])
def test_a_batch_size_that_is_no_positive_int_is_refused(model, wrong):
    message = r"batch_size must be a positive int, found"
    calls = [
        lambda: model.classify(np.zeros((16, 16, 3)), batch_size=wrong),
        lambda: model.tokens(IMAGES, batch_size=wrong, prepared=True),
        lambda: model.probabilities(IMAGES, wrong, prepared=True),
        lambda: keras_vit.explain(model, IMAGES, batch_size=wrong, prepared=True),
        lambda: keras_vit.explanation.attention_maps(
            model, IMAGES, batch_size=wrong, prepared=True
        ),
        lambda: keras_vit.evaluation.features(model, IMAGES, batch_size=wrong, prepared=True),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=message):
            call()


def test_other_numbers_are_refused_by_the_names_of_their_arguments(model):
    with pytest.raises(ConfigError, match="top must be a positive int, found '3'"):
        model.classify(np.zeros((16, 16, 3)), top="3")
    with pytest.raises(ConfigError, match="steps must be a positive int, found 1.5"):
        keras_vit.explain(model, IMAGES, method="integrated_gradients", steps=1.5, prepared=True)
    with pytest.raises(
        ConfigError, match="learning_rate must be a positive number or None, found 'x'"
    ):
        keras_vit.training.TransferRecipe(4, 4, learning_rate="x")
    for size in ("224", (1, 2, 3), 32.5):
        with pytest.raises(ConfigError, match="image_size must be a positive int or a pair"):
            keras_vit.models.flops(model, size)
