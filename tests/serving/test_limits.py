"""Slow clients and too many of them get the right status, and the server goes on."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import hypothesis
import numpy as np
import pytest
import requests
from hypothesis import strategies as st

from tests.digits import encoded
from tests.processes import eventually
from tests.runs import times
from tests.serving.live import labels, post, served, waiting

DIGIT = encoded(np.zeros((8, 8), "uint8"))


@pytest.fixture
def held(model, monkeypatch):
    """An event without which the model computes nothing."""
    go, original = threading.Event(), model.probabilities

    def waits(*arguments, **words):
        assert go.wait(60)
        return original(*arguments, **words)

    go.set()  # the server's first calls warm it up
    monkeypatch.setattr(model, "probabilities", waits)
    yield go
    go.set()


def connected(address):
    """A connection that sends what is not HTTP, or not all of it."""
    return socket.create_connection(address.removeprefix("http://").split(":"), 60)


def flipped(place):
    """An image with one byte changed."""
    body = bytearray(DIGIT)
    body[place % len(body)] ^= 255
    return bytes(body)


@hypothesis.settings(max_examples=times(12, 300), deadline=None)
@hypothesis.given(
    st.binary(max_size=300) | st.integers(0, 999).map(flipped),
    st.sampled_from(["image/png", "application/json", "multipart/form-data; boundary=x", "\x7f"]),
)
def test_any_body_of_any_type_gets_an_answer(address, body, kind):
    answer = post(address, body, headers={"Content-Type": kind})
    assert answer.status_code in (200, 400, 413, 415) and answer.json()


def test_a_body_without_a_stated_length_is_cut_off(address):
    """Chunks are counted while they come."""
    assert post(address, (b"\0" * 9_000 for _ in range(10))).status_code == 413


def test_too_many_images_wait(model, image, held):
    """The third image gets 429; the two that were accepted are answered, even after the end."""
    with ThreadPoolExecutor(2) as clients:
        with served(model, max_queue=2) as address:
            held.clear()
            accepted = [clients.submit(post, address, image) for _ in range(2)]
            eventually(lambda: waiting(address) == 2)
            refused = post(address, image)
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) >= 1
            threading.Timer(0.2, held.set).start()
        assert [answer.result(60).status_code for answer in accepted] == [200, 200]


@pytest.mark.nightly
def test_sigterm_lets_accepted_requests_be_answered(model, image):
    """Eight images wait for their batch when the signal comes; all are answered, then it ends.

    Its short form is `test_too_many_images_wait`.
    """
    command = [sys.executable, "-m", "keras_vit.cli", "serve", "vit_digits", "--port", "0"]
    options = ["--batch-wait", "1.5", "--max-batch", "16"]
    with (
        subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process,
        ThreadPoolExecutor(8) as clients,
    ):
        address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline()).group()
        assert waiting(address) == 0
        asked = [clients.submit(post, address, image) for _ in range(8)]
        eventually(lambda: waiting(address) == 8)
        process.send_signal(signal.SIGTERM)
        for answer in asked:
            (found,), (expected,) = labels(answer.result(60)), model.classify(image)
            assert dict(found) == pytest.approx(dict(expected), abs=1e-6)
        assert process.wait(60) == 0
        with pytest.raises(requests.ConnectionError):
            waiting(address)


def test_an_answer_that_takes_too_long_or_fails(model, image, held, monkeypatch):
    """The client gets 503, or 500 and no reason; the next one an answer."""
    with served(model, timeout=0.2) as address:
        held.clear()
        refused = post(address, image)
        assert refused.status_code == 503 and "Retry-After" in refused.headers
        held.set()
        with monkeypatch.context() as patch:
            patch.setattr(model.inference, "run", lambda *arguments: 1 / 0)
            failed = post(address, image)
        assert failed.status_code == 500 and "division" not in failed.text
        assert labels(post(address, image)) == model.classify(image)
        assert waiting(address) == 0


def test_more_connections_than_the_limit(model, image):
    """A request on one more connection gets 503."""
    with served(model, max_connections=2) as address:
        with connected(address), connected(address):
            assert post(address, image).status_code == 503
        eventually(lambda: post(address, image).status_code == 200)


WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_BODY = b"POST /classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nabc"
HALF_HEADER = b"POST /classify HTTP/1.1\r\nHost: x\r\nX: "
UNFINISHED = [(HALF_BODY, b" 408 "), (HALF_HEADER, b""), (b"", b""), (WHOLE + b"GET /", b" 200 ")]


@pytest.mark.parametrize(("start", "answer"), UNFINISHED[: times(2, 4)])
def test_a_request_that_never_ends_closes_its_connection(model, image, start, answer):
    """Half a body, half a header, none, or half a second one; others are served meanwhile."""
    with served(model, read_timeout=0.3) as address, connected(address) as client:
        client.sendall(start)
        assert labels(post(address, image)) == model.classify(image)
        found = b"".join(iter(lambda: client.recv(10_000), b""))
    assert answer in found[:20] and found.count(b"HTTP/1.1") == bool(answer)


DRIPPING = (WHOLE[:-2] + b"Content-Length: 1000000\r\n\r\n", b"x")
NEVER_READING = (b"", WHOLE.replace(b"healthz", b"openapi.json"))


@pytest.mark.parametrize(("first", "more"), [DRIPPING, NEVER_READING][: times(1, 2)])
def test_an_answered_client_that_sends_on_or_never_reads_is_closed(model, first, more):
    """The rest of a body that nobody waits for drips; answers pile up."""
    with served(model, read_timeout=0.3) as slow, connected(slow) as client:
        client.sendall(first)
        client.settimeout(0.1)  # the server may read no more
        end = time.monotonic() + 60
        with pytest.raises(ConnectionError):
            while time.monotonic() < end:
                with contextlib.suppress(TimeoutError):
                    client.send(more)
