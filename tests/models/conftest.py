"""What the refusals of models take."""

import functools

import pytest
from safetensors.numpy import save_file

from tests import refusals
from tests.helpers import tiny
from tests.plain import normal

MODELS = {
    "model": {"num_classes": 3},
    "deep": {"num_layers": 2},
    "one": {"num_classes": 1},
    "packed": {"patch_size": 4, "position_grid": (3, 3), "stem": {"kind": "packed"}},
}


@functools.cache
def small(name):
    return tiny(**MODELS[name])


class World(refusals.World):
    """A model of three classes, of two blocks, of one logit, and of at most 16 packed patches."""

    model, deep, one, packed = (property(lambda _, name=name: small(name)) for name in MODELS)
    images = 0.1 * normal(2, 16, 16, 3)

    def head(self, **arrays):
        """The model with the head in a file of these arrays."""
        save_file(arrays, self.path / "head.safetensors")
        return self.model.with_head(self.path / "head.safetensors")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)
