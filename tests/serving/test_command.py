"""`keras-vit serve` as a process of its own: its port, its signals, its refusals."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from starlette.testclient import TestClient

from keras_vit import VisionTransformer
from keras_vit.cli import main
from tests.digits import digits, encoded
from tests.processes import eventually
from tests.serving.live import labels, post


@contextlib.contextmanager
def command(*options):
    """Yields a process of `keras-vit serve` and its address, once it answers."""
    arguments = [sys.executable, "-m", "keras_vit.cli", "serve", "vit_digits", "--port", "0"]
    process = subprocess.Popen(
        [*arguments, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline()).group()

        def answers():
            with contextlib.suppress(requests.ConnectionError):
                return requests.get(f"{address}/healthz", timeout=60).ok
            return False

        eventually(answers)
        yield process, address
    finally:
        process.kill()
        process.communicate()


def test_sigterm_lets_accepted_requests_be_answered():
    """Eight images wait for their batch when the signal comes; all are answered, then it ends."""
    image = encoded(digits()[1][0, ..., 0])
    expected = VisionTransformer.from_preset("vit_digits").classify(image)[0]
    with (
        command("--batch-wait", "1.5", "--max-batch", "16") as (process, address),
        ThreadPoolExecutor(8) as clients,
    ):
        asked = [clients.submit(post, address, image) for _ in range(8)]
        health = f"{address}/healthz"
        eventually(lambda: requests.get(health, timeout=60).json()["images_waiting"] == 8)
        process.send_signal(signal.SIGTERM)
        for answer in asked:
            assert dict(labels(answer.result(60))[0]) == pytest.approx(dict(expected), abs=1e-6)
        assert process.wait(60) == 0
        with pytest.raises(requests.ConnectionError):
            requests.get(health, timeout=60)


def test_the_model_is_loaded_as_the_options_say(monkeypatch):
    """In 16 bits, for images of another size, with the mean of a block as features."""
    served = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, *_: served.append(server.config.app))
    options = ("--dtype", "mixed_bfloat16", "--image-size", "12", "--stage", "block_1")
    assert main(["serve", "vit_digits", "--port", "0", *options, "--pooling", "gap"]) == 0
    with TestClient(served[0], base_url="http://localhost") as client:
        metadata = client.get("/metadata").json()
        answer = client.post("/embed", content=encoded(digits()[1][0, ..., 0])).json()
    assert (metadata["dtype"], metadata["image_size"]) == ("mixed_bfloat16", [12, 12])
    assert (metadata["name"], metadata["embeds"]) == ("vit_digits", "block_1/gap")
    assert len(answer["embeddings"][0]) == 64


def test_a_taken_port_and_an_unknown_preset_are_refused(capsys):
    """One sentence each, before a model is loaded."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "vit_digits", "--port", str(port)]) == 2
    assert f"--port {port}: the server cannot listen at this address" in capsys.readouterr().err
    assert main(["serve", "vit_digit"]) == 2
    assert "vit_digits" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["192.0.2.1", "\udcff"])
def test_an_impossible_host_is_refused(capsys, host):
    """An address of another machine, and bytes that are no UTF-8."""
    assert main(["serve", "vit_digits", "--host", host, "--port", "0"]) == 2
    assert "cannot listen at this address" in capsys.readouterr().err


def test_the_extra_is_named_if_it_is_missing(monkeypatch, capsys):
    """With the line that installs it."""
    monkeypatch.setitem(sys.modules, "fastapi_offline", None)
    assert main(["serve", "vit_digits"]) == 2
    assert "pip install 'keras-vit[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stage", "block_99"], "block_99"),
        (["--stage", "pre_logits", "--pooling", "gap"], "has no --pooling 'gap'"),
        (["--stage", ""], "stage"),
    ],
)
def test_an_impossible_stage_is_refused_before_the_server_answers(
    options, message, monkeypatch, capsys
):
    """At the start, not with the first request."""

    def answers(*arguments):
        raise AssertionError("the server began to answer")

    monkeypatch.setattr("uvicorn.Server.run", answers)
    assert main(["serve", "vit_digits", "--port", "0", *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Serving" not in captured.out
