"""Bad requests, slow clients and too many of them get the right status, and the server goes on."""

import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests

from keras_vit.errors import ConfigError
from keras_vit.serving import Settings
from tests.helpers import random_tiny
from tests.images.test_decoding import bomb
from tests.processes import eventually
from tests.serving.live import labels, post, served


@pytest.fixture(scope="module")
def address(model):
    with served(model, max_bytes=50_000, max_pixels=10_000, max_images=3) as started:
        yield started


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


JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
FILE = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\nabc\r\n'


@pytest.mark.parametrize(
    ("body", "headers", "status", "sentence"),
    [
        (b"", {}, 400, "no image, or an empty one"),
        (b"\x00" * 50_001, {}, 413, "more than 50,000 bytes"),
        (b"no image", {}, 415, "no known format"),
        (bomb(60_000, 60_000), {}, 413, "more pixels than the limit, 10,000"),
        (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "is not accepted"),
        (b"<p>", {"Content-Type": "text/html"}, 415, "is not accepted"),
        (b"{", JSON, 400, "Invalid JSON"),
        (b"[" * 40_000, JSON, 400, "Invalid JSON"),
        (b'{"images": []}', JSON, 400, "The body: Input should be a valid array; send a JSON list"),
        (b"[]", JSON, 400, "holds no image"),
        (b'["!"]', JSON, 400, "Element 0 of the list: Data should be valid base64"),
        (b"[[]]", JSON, 400, "Element 0 of the list: Input should be a valid bytes"),
        (b'["aGVsbG8="]', JSON, 415, "no known format"),
        (b'["","","",""]', JSON, 413, "more than 3 images"),
        (b"abc", FORM, 400, "form cannot be read"),
        (b"--x--", FORM, 400, "holds no image"),
        (2 * FILE, FORM, 400, "form cannot be read: The boundary of its Content-Type does"),
        (FILE.replace(b"abc", b"ab--"), FORM, 400, "does not end it"),
        (b"--x--\r\nafterwards", FORM, 400, "holds no image"),
        (b"abc", {"Content-Type": "multipart/form-data"}, 400, "form cannot be read"),
        (4 * FILE + b"--x--", FORM, 413, "more than 3 images"),
    ],
)
def test_a_bad_request_gets_a_status_and_a_sentence(address, body, headers, status, sentence):
    """Malformed, of another type, too large, or a bomb."""
    answer = post(address, body, headers=headers)
    assert (answer.status_code, sentence in answer.json()["detail"]) == (status, True), answer.text


def test_a_damaged_image_is_refused(address, image):
    """Its header is right; half of its pixels are missing."""
    answer = post(address, image[: len(image) - 40])
    assert answer.status_code == 415
    assert "not a readable image" in answer.json()["detail"]


def test_an_answer_that_is_not_finite_has_a_reason(image):
    """A weight is NaN; JSON has no word for it."""
    model = random_tiny(num_classes=2)
    model.get_layer("encoder_norm").gamma.assign([np.nan] * model.config.hidden_size)
    with served(model) as address:
        for answer in (post(address, image, path) for path in ("classify", "embed")):
            found = answer.status_code, "is NaN or infinity" in answer.json()["detail"]
            assert found == (500, True), answer.text


def test_bytes_that_name_a_file_open_no_file(address, tmp_path, image):
    """The preprocessor takes a line of text for a path; a client must not read files so."""
    path = tmp_path / "secret.png"
    path.write_bytes(image)
    answer = post(address, str(path).encode())
    assert answer.status_code == 415 and "secret" not in answer.text


def test_a_body_without_a_stated_length_is_cut_off(address):
    """Chunks are counted while they come."""
    answer = post(address, (b"\0" * 9_000 for _ in range(10)))
    assert answer.status_code == 413


OWN_NAMES = "LOCALHOST:8000", "127.0.0.1", "[::1]:8000", "vit.example.org", "a.example.net"
STRANGE_NAMES = "attacker.example", "attacker.example:80", "localhost.attacker.example", "", "[:"


def test_a_name_that_is_not_the_server_s_is_refused(model, image):
    """A stranger's page that reaches the port by its own name gets no answer."""
    names = ("localhost", "vit.example.org", "*.example.net")
    with served(model, allowed_hosts=names) as address:
        for host in OWN_NAMES:
            assert post(address, image, headers={"Host": host}).status_code == 200, host
        for host in (*STRANGE_NAMES, "example.net.attacker.example"):
            answer = post(address, image, headers={"Host": host})
            assert (answer.status_code, "--allowed-hosts" in answer.text) == (400, True), host


@pytest.mark.parametrize("top", ["0", "-1", "many"])
def test_an_impossible_number_of_labels_is_refused(address, image, top):
    """One sentence with the value, as for all refusals."""
    answer = post(address, image, params={"top": top})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(f"top='{top}': Input should be ")


def test_hundreds_of_malformed_requests(address, model, image):
    """Random bodies of random types, and bytes that are no HTTP; then a good request is right."""
    rng = np.random.default_rng(0)
    host = address.removeprefix("http://")
    kinds = ["image/png", "application/json", "multipart/form-data; boundary=x", "", "\x7f", "a/b"]
    client = http.client.HTTPConnection(host, timeout=60)
    statuses = set()
    for k in range(300):
        body = bytearray(rng.bytes(int(rng.integers(0, 300))))
        if k % 3 == 0:  # an image with one byte changed
            body = bytearray(image)
            body[int(rng.integers(len(body)))] ^= 255
        client.request("POST", "/classify", bytes(body), {"Content-Type": kinds[k % 6]})
        answer = client.getresponse()
        json.loads(answer.read())
        statuses.add(answer.status)
    assert statuses <= {200, 400, 413, 415} and {400, 415} <= statuses
    for _ in range(20):
        with socket.create_connection(host.split(":"), 60) as raw:
            raw.sendall(rng.bytes(100) + b"\r\n\r\n")
            assert b"400" in raw.recv(1000)[:20]
    assert labels(post(address, image)) == model.classify(image)


def test_too_many_images_wait(model, image, held):
    """The third image gets 429; the two that were accepted are answered."""
    with served(model, max_queue=2) as address, ThreadPoolExecutor(2) as clients:
        held.clear()
        accepted = [clients.submit(post, address, image) for _ in range(2)]
        health = f"{address}/healthz"
        eventually(lambda: requests.get(health, timeout=60).json()["images_waiting"] == 2)
        refused = post(address, image)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        held.set()
        assert [answer.result(60).status_code for answer in accepted] == [200, 200]
        assert requests.get(health, timeout=60).json()["images_waiting"] == 0


def test_after_a_refused_image_the_others_of_its_request_are_not_computed(
    model, image, monkeypatch
):
    """The message numbers the refused image; the next request has a batch of its own."""
    sizes, original = [], model.probabilities

    def record(batch, *arguments, **words):
        sizes.append(len(batch))
        return original(batch, *arguments, **words)

    monkeypatch.setattr(model, "probabilities", record)
    with served(model, batch_wait=0.5) as address:
        sizes.clear()  # the server has warmed up
        files = [("images", (name, body)) for name, body in (("a", image), ("b", b"none"))]
        refused = requests.post(f"{address}/classify", files=files, timeout=60)
        assert refused.status_code == 415
        assert refused.json()["detail"].startswith("Image 2: not a readable image")
        assert labels(post(address, image)) == model.classify(image)
        assert sizes[0] == 1


def test_an_answer_that_takes_too_long(model, image, held):
    """The client gets 503; the next one an answer."""
    with served(model, timeout=0.2) as address:
        held.clear()
        refused = post(address, image)
        assert refused.status_code == 503 and "Retry-After" in refused.headers
        held.set()
        assert labels(post(address, image)) == model.classify(image)


def test_half_a_body_gets_408(model, image):
    """Others are served meanwhile."""
    with served(model, read_timeout=0.3) as address:
        host = address.removeprefix("http://").split(":")
        with socket.create_connection(host, 60) as hanging:
            hanging.sendall(
                b"POST /classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nabc"
            )
            assert labels(post(address, image)) == model.classify(image)
            answer = b"".join(iter(lambda: hanging.recv(10_000), b""))
    assert answer.startswith(b"HTTP/1.1 408")


def test_the_server_survives_a_failure_of_the_model(model, image, monkeypatch):
    """The client learns that the server failed, and no more; the next request is answered."""
    with served(model) as address:
        original = model.probabilities
        # The application holds the method that it was made with; the model below fails.
        monkeypatch.setattr(model.inference, "run", lambda *arguments: 1 / 0)
        failed = post(address, image)
        assert failed.status_code == 500 and "division" not in failed.text
        monkeypatch.undo()
        assert labels(post(address, image)) == model.classify(image)
        assert original == model.probabilities


def test_more_connections_than_the_limit(model, image):
    """A request on one more connection gets 503."""
    with served(model, max_connections=3) as address:
        host = address.removeprefix("http://").split(":")
        idle = [socket.create_connection(host, 60) for _ in range(3)]
        assert post(address, image).status_code == 503
        for connection in idle:
            connection.close()
        eventually(lambda: post(address, image).status_code == 200)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"max_queue": 0}, "max_queue=0: expected a number above 0"),
        ({"timeout": -1.0}, "timeout=-1.0: expected a number above 0"),
        ({"batch_wait": -0.1}, "batch_wait=-0.1: expected a number above 0"),
        ({"allowed_hosts": ("a*.org",)}, r"'a\*\.org' is no name of a host"),
    ],
)
def test_impossible_limits_are_refused(limit, message):
    """Numbers are positive; a star of a host stands alone or at the beginning."""
    with pytest.raises(ConfigError, match=message):
        Settings(**limit)


def test_an_application_that_was_not_started_says_so(model, image):
    """As where another application mounts it, which starts no lifespan but its own."""
    from starlette.testclient import TestClient

    from keras_vit.serving import application

    client = TestClient(application(model), base_url="http://localhost")
    refused = client.post("/classify", content=image)
    assert refused.status_code == 503 and "has not been started" in refused.json()["detail"]


def test_health_is_told_by_head_too(address):
    """Watchers such as `wget --spider` send it."""
    assert requests.head(f"{address}/healthz", timeout=60).status_code == 200


def test_a_model_of_five_channels_is_not_served():
    """Image files have 1, 3 or 4 channels."""
    from keras_vit.serving import application

    with pytest.raises(ConfigError, match="takes 5 channels"):
        application(random_tiny(channels=5))


def test_a_page_of_another_site_may_not_send_images(address, image):
    """A page of this host may, under any of its ports; and a program, which has no origin."""
    port = address.rpartition(":")[2]
    for origin, status in (
        ("http://evil.com", 403),
        ("null", 403),
        ("http://6.6.6.6", 403),
        ("http://[", 403),
        (f"http://127.0.0.1:{port}", 200),
        ("http://localhost:3000", 200),
        (None, 200),
    ):
        headers = {} if origin is None else {"Origin": origin}
        assert post(address, image, headers=headers).status_code == status, origin


def test_a_header_that_never_ends_closes_its_connection(model, image):
    """Half a header, none, or half of a second one; a connection that answers is kept."""
    with served(model, read_timeout=0.5) as slow:
        place = ("127.0.0.1", int(slow.rpartition(":")[2]))
        whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for start in (b"", b"POST /classify HTTP/1.1\r\nHost: x\r\nX: ", whole + b"GET /"):
            with socket.create_connection(place, timeout=30) as client:
                client.sendall(start)
                answer = b""
                while part := client.recv(1000):
                    answer += part
            assert answer.count(b"200 OK") == start.count(whole)
        assert post(slow, image).status_code == 200


def test_an_answered_client_that_sends_on_or_never_reads_is_closed(model):
    """The rest of a body that nobody waits for drips; answers pile up."""
    get = b" HTTP/1.1\r\nHost: localhost\r\n"
    body = b"GET /healthz" + get + b"Content-Length: 1000000\r\n\r\n"
    with served(model, read_timeout=0.5) as slow:
        place = ("127.0.0.1", int(slow.rpartition(":")[2]))
        for first, more in ((body, b"x"), (b"", b"GET /openapi.json" + get + b"\r\n")):
            with socket.create_connection(place) as client:
                client.sendall(first)
                client.setblocking(False)

                def is_closed(client=client, more=more):
                    try:
                        client.send(more)
                    except BlockingIOError:  # the server reads no more
                        return False
                    except OSError:
                        return True
                    return False

                eventually(is_closed)
