"""One small model and its data for all tests of evaluation."""

import numpy as np
import pytest

from tests.digits import write_folders
from tests.helpers import normal, random_tiny


@pytest.fixture(autouse=True, scope="module")
def _quickly(quick_compilation):
    """Models are compiled more often than they are used."""


@pytest.fixture(scope="session")
def model():
    """Seven classes of 16-pixel images."""
    return random_tiny(num_classes=7, labels=list("abcdefg"))


@pytest.fixture(scope="session")
def grey():
    """Five classes of 16-pixel images of one channel."""
    return random_tiny(channels=1)


@pytest.fixture(scope="session")
def images():
    """Float32 images `(23, 16, 16, 3)` in [-1, 1]: no multiple of a batch."""
    return np.clip(normal(23, 16, 16, 3) / 2, -1, 1)


@pytest.fixture(scope="session")
def classes():
    """A class for each of the images."""
    return np.random.default_rng(1).integers(0, 7, 23)


@pytest.fixture(scope="session")
def logits(model, images):
    """What the model says, in one piece."""
    return model.predict(images, batch_size=len(images), verbose=0)


@pytest.fixture
def digits_folder(tmp_path):
    """Twenty-three PNG files of 16 pixels in folders by their digit."""
    return write_folders(tmp_path / "digits", train=23, test=1, size=16)[0]
