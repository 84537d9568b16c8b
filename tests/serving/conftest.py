"""The shipped model of digits, an image for it, a server of it, and what refusals call."""

import re
import socket
import sys

import pytest
import requests
from starlette.testclient import TestClient

from keras_vit import VisionTransformer
from keras_vit.cli import main
from keras_vit.serving import application
from tests.digits import digits, encoded
from tests.refusals import World
from tests.serving.live import data_url, post, served


@pytest.fixture(scope="module")
def model():
    return VisionTransformer.from_preset("vit_digits")


@pytest.fixture(scope="module")
def image():
    return encoded(digits()[1][0, ..., 0])


@pytest.fixture(scope="module")
def address(model):
    hosts = ("localhost", "vit.example.org", "*.example.net")
    limits = {"max_bytes": 50_000, "max_pixels": 10_000, "max_images": 8}
    with served(model, max_batch=4, allowed_hosts=hosts, **limits) as started:
        yield started


class RefusedError(Exception):
    """The status and the sentence of a refusal, by HTTP or by the command line."""


def without_foreign_words(text):
    """Leaves out the number of a port, and what the system, pydantic and python-multipart say."""
    for before, after in (
        (r"body[.\w]*: |top='\w+': ", r"; send|$"),
        (r"cannot be read: (?!The boundary)", r" Send"),
        (r"--port ", r": "),
        (r"at this address \(", r"\)\. Choose"),
    ):
        text = re.sub(f"({before}).*?(?={after})", r"\1…", text)
    return text


def refuse(answer):
    if answer.status_code != 200:
        body = answer.json()
        words = without_foreign_words(
            body["detail"] if "detail" in body else body["error"]["message"]
        )
        raise RefusedError(f"{answer.status_code}: {words}")


class ServingWorld(World):
    """Adds requests to a running server and to a model, and the command."""

    def __init__(self, path, address, image, monkeypatch, capsys):
        super().__init__(path)
        self.address, self.image, self.capsys = address, image, capsys
        self.patch = monkeypatch

    def post(self, body, **options):
        refuse(post(self.address, body, **options))

    def embed(self, **fields):
        """Asks as OpenAI's client does, for the image of the world by default."""
        body = {"model": "vit_digits", "input": data_url(self.image), **fields}
        refuse(requests.post(f"{self.address}/v1/embeddings", json=body, timeout=60))

    def ask(self, model, body=None):
        with TestClient(application(model), base_url="http://localhost") as client:
            refuse(client.post("/classify", content=body or self.image))

    def file_name(self):
        """Bytes that the preprocessor would take for a path; a client must not read files so."""
        path = self.path / "secret.png"
        path.write_bytes(self.image)
        return str(path).encode()

    def serve(self, *options, source="vit_digits", port=0):
        """Calls the command, which must not begin to answer."""
        self.patch.setattr("uvicorn.Server.run", None)
        if status := main(["serve", source, "--port", str(port), *options]):
            printed = self.capsys.readouterr()
            assert "Serving" not in printed.out
            raise RefusedError(f"{status}: {without_foreign_words(printed.err.strip())}")

    def serve_without_extra(self):
        self.patch.setitem(sys.modules, "fastapi_offline", None)
        self.serve()

    def serve_at_a_taken_port(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.serve(port=taken.getsockname()[1])


@pytest.fixture
def world(tmp_path, address, image, monkeypatch, capsys):
    return ServingWorld(tmp_path, address, image, monkeypatch, capsys)
