"""Fixtures for the tests of checkpoints."""

import socket
from functools import cached_property

import pytest

from tests import refusals
from tests.plain import stored


class World(refusals.World):
    """What the refusals of this room use beside a folder."""

    @cached_property
    def model(self):
        """A small classifier whose weights are random."""
        from tests.helpers import random_tiny

        return random_tiny()

    @cached_property
    def pickle(self):
        """A folder as transformers 4 wrote it: a pickle and no safetensors."""
        import torch

        from keras_vit import checkpoints

        folder = self.path / "pickle"
        checkpoints.save(self.model, folder, "transformers")
        arrays = stored(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        torch.save({n: torch.tensor(a) for n, a in arrays.items()}, folder / "pytorch_model.bin")
        return folder


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture(scope="module")
def offline():
    """Forbids the network: the Hub's client is set offline, and every connection fails."""

    def refuse(self, address):
        raise AssertionError(f"a connection to {address}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr(socket.socket, "connect", refuse)
        yield


@pytest.fixture(scope="module")
def blank_models():
    """New models have zero weights, for tests that build many and overwrite all weights."""
    from keras_vit.layers import blank_weights

    with blank_weights():
        yield
