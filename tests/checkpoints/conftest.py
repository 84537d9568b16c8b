"""Fixtures for the tests of checkpoints."""

import socket

import pytest


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
