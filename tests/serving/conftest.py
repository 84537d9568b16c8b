"""The shipped model of digits, an image for it, and a server of it."""

import pytest

from keras_vit import VisionTransformer
from tests.digits import digits, encoded
from tests.serving.live import served


@pytest.fixture(scope="module")
def model():
    return VisionTransformer.from_preset("vit_digits")


@pytest.fixture(scope="module")
def image():
    return encoded(digits()[1][0, ..., 0])


@pytest.fixture(scope="module")
def address(model):
    with served(model, max_batch=4) as started:
        yield started
