"""A local server in place of the Hub and the official bucket."""

import re
import shutil

import pytest

from keras_vit.presets.catalog import preset_named
from tests.presets.hub_server import connect, served
from tests.refusals import World

_OTHERS = {
    r"(no connection to \S+|broke off) \((?!ReadTimeout).*?\)(?=\.)": r"\1 (...)",
    r"\(([A-Z]\w+): .*?\)(?=\.)": r"(\1: ...)",
    r"(JSON file|safetensors file|metric_value|UTF-8) \(.*\)\.": r"\1 (...).",
    r"(/subfolder\]\.|download failed\.) .*?(?= Call again|$)": r"\1 ...",
    r"\d+ bytes came in \d+ s": "N bytes came in T s",
}
"""Patterns of what other libraries say or measure, and what stands for it."""


class HubWorld(World):
    """A Hub with a preset, `hf://us/digits`, and a folder with the same preset."""

    def __init__(self, path, hub, patch) -> None:
        super().__init__(path)
        self.hub, self.patch = hub, patch
        self.source = preset_named("vit_digits").folder
        self.folder = shutil.copytree(self.source, path / "digits")
        hub.add("us/digits", self.source)

    def plain(self, error):
        """The error in our words alone, without those of libraries and the port of the server."""
        port = self.hub.endpoint.rpartition(":")[2]
        text = str(error).replace(f":{port}", ":PORT").replace(str(self.path)[1:], "<folder>")
        for pattern, words in _OTHERS.items():
            text = re.sub(pattern, words, text, flags=re.DOTALL)
        return type(error)(text.replace("/<folder>", "<folder>"))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub without repositories, a bucket without files, and an empty cache."""
    with served() as hub:
        connect(hub, tmp_path / "cache", monkeypatch)
        yield hub


@pytest.fixture
def world(tmp_path, hub, monkeypatch):
    return HubWorld(tmp_path, hub, monkeypatch)
