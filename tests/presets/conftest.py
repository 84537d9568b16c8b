"""A local server in place of the Hub and the official bucket."""

import pytest

from tests.presets.hub_server import connect, served


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub without repositories, a bucket without files, and an empty cache."""
    with served() as hub:
        connect(hub, tmp_path / "cache", monkeypatch)
        yield hub
