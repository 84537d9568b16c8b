"""The world of the refusals of exports."""

import pytest

import keras_vit
from keras_vit.exporting import writing
from tests.helpers import random_tiny
from tests.refusals import World


class Exports(World):
    """Exports models of one block into the folder that must not be there afterwards."""

    def __init__(self, path, patch):
        super().__init__(path)
        self._patch = patch

    def export(self, model=None, path=None, **options):
        model = random_tiny(hidden_size=32) if model is None else model
        keras_vit.export(model, self.out if path is None else path, **options)

    def without(self, *modules):
        """This world, in which modules are not installed."""
        self._patch.setattr(writing, "is_installed", lambda name: name not in modules)
        return self

    def with_format(self, form):
        """This world, whose formats are all this one."""
        self._patch.setattr(writing, "load_format", lambda name: form)
        return self


@pytest.fixture
def world(tmp_path, monkeypatch):
    return Exports(tmp_path, monkeypatch)
