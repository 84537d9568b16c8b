"""One small model and its data for all tests of evaluation."""

import contextlib

import numpy as np
import pytest

from keras_vit.evaluation import embedding, extraction, scores
from tests.digits import write_folders
from tests.helpers import random_tiny
from tests.plain import normal
from tests.refusals import World


@pytest.fixture(scope="session")
def model():
    """A model with seven classes for RGB images of 16 pixels."""
    return random_tiny(num_classes=7, class_names=list("abcdefg"))


@pytest.fixture(scope="session")
def images():
    """Float32 images `(23, 16, 16, 3)` in [-1, 1]; 23 is no multiple of the batch size."""
    return np.clip(normal(23, 16, 16, 3) / 2, -1, 1)


@pytest.fixture(scope="session")
def classes():
    """A class for each of the images."""
    return np.random.default_rng(1).integers(0, 7, 23)


@pytest.fixture(scope="session")
def logits(model, images):
    """The model's logits of all images, computed in one batch."""
    return model.predict(images, batch_size=len(images), verbose=0)


@pytest.fixture
def digits_folder(tmp_path):
    """Twenty-three PNG files of 16 pixels, one folder per digit."""
    return write_folders(tmp_path / "digits", train=23, test=1, size=16)[0]


@pytest.fixture
def world(tmp_path, model, images, classes):
    """The model, its images and their classes, for the table of refusals."""
    found = World(tmp_path)
    found.model, found.images, found.classes = model, images, classes
    return found


class Bar:
    """A progress bar that keeps the steps that it is told of.

    Attributes:
        counts: images of each step.
        then: called after each step with its images; a test may raise there.
    """

    def __init__(self):
        self.counts = []
        self.then = lambda images: None

    def advance(self, images):
        if images:
            self.counts.append(images)
            self.then(images)

    def interrupt(self, call, *arguments, **options):
        """Stops a call after its second step; returns how many images it had seen."""

        def stop(images):
            if len(self.counts) == 2:
                raise KeyboardInterrupt

        self.then = stop
        with pytest.raises(KeyboardInterrupt):
            call(*arguments, **options, progress=True)
        seen, self.counts, self.then = sum(self.counts), [], lambda images: None
        return seen


@pytest.fixture
def bar(monkeypatch):
    """The bar of every function of evaluation, if it is asked for."""
    made = Bar()

    @contextlib.contextmanager
    def shown_bar(shown, *_):
        yield made.advance if shown else lambda images: None

    for module in (embedding, extraction, scores):
        monkeypatch.setattr(module, "progress_bar", shown_bar)
    return made
