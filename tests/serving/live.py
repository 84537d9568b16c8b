"""A server in a thread of the test's process, on a free port of 127.0.0.1."""

import base64
import contextlib
import socket
import threading

import requests
import uvicorn

from keras_vit.serving import Settings, application
from keras_vit.serving.server import configuration
from tests.processes import eventually


@contextlib.contextmanager
def served(model, stage=None, pooling=None, **limits):
    """Yields the address of a server of a model; the server has drained when the context ends."""
    settings = Settings(**limits)
    app = application(model, settings, stage=stage, pooling=pooling)
    server = uvicorn.Server(configuration(app, settings))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            eventually(lambda: server.started or not thread.is_alive())
            assert server.started, "the server ended before it was ready; its log says why"
            yield address
        finally:
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive()


def labels(response):
    """The labels and probabilities of a response, as `classify` gives them."""
    assert response.status_code == 200, response.text
    return [
        [(answer["label"], answer["probability"]) for answer in answers]
        for answers in response.json()["predictions"]
    ]


def post(address, body, path="classify", **options):
    """A request with one image as its body."""
    return requests.post(f"{address}/{path}", data=body, timeout=60, **options)


def data_url(image):
    """An image file as OpenAI's client sends it."""
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"


def waiting(address):
    """How many images a server has accepted and not answered."""
    return requests.get(f"{address}/healthz", timeout=60).json()["images_waiting"]
