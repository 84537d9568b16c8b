"""A bad request gets a status and a sentence; so does a model or an option of the command."""

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.serving import Settings, application
from tests.digits import encoded
from tests.helpers import random_tiny
from tests.serving.conftest import RefusedError
from tests.serving.live import post


def typed(kind):
    return {"headers": {"Content-Type": kind}}


JSON, FORM = typed("application/json"), typed("multipart/form-data; boundary=x")
FILE = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\nabc\r\n'
TINY, DIGIT, PIXELS = (encoded(np.zeros(side, "uint8")) for side in ((2, 2), (8, 8), (101, 100)))
ANY = {"image_size": None, "position_grid": (3, 3)}
BODIES = {
    "no body": (b"", {}, "400: The request holds no image, or an empty one"),
    "too many bytes": (b"\0" * 50_001, {}, "413: The body has more than 50,000 bytes"),
    "too many pixels": (PIXELS, {}, "413: Image 1 has more pixels"),
    "half an image": (DIGIT[:45], {}, "415: Image 1: not a readable image"),
    "another type": (b"<p>", typed("text/html"), "415: Content-Type 'text/html' is not accepted"),
    "deep JSON": (b"[" * 40_000, JSON, "400: The body: "),
    "JSON without a list": (b'{"images": []}', JSON, "send a JSON list"),
    "no base64": (b'["", "!"]', JSON, "400: Element 1 of the list"),
    "too many images": (b'["","","","","","","","",""]', JSON, "413: The request has more than 8"),
    "a form without its end": (2 * FILE, FORM, "400: The form cannot be read: The boundary"),
    "zero labels": (DIGIT, {"params": {"top": 0}}, "422: top='0'"),
    "another host": (DIGIT, {"headers": {"Host": "evil.com"}}, "400: 'evil.com' is no name"),
    "another site": (DIGIT, {"headers": {"Origin": "http://evil.com"}}, "403: A page of 'http://e"),
}


def not_finite():
    model = random_tiny(num_classes=2)
    model.get_layer("encoder_norm").gamma.assign([np.nan] * model.config.hidden_size)
    return model


REFUSALS = {
    name: (lambda w, body=body, how=how: w.post(body, **how), RefusedError, fragment)
    for name, (body, how, fragment) in BODIES.items()
}
REFUSALS |= {
    "the name of a file": (lambda w: w.post(w.file_name()), RefusedError, "415: Image 1: not a"),
    "no labels": (lambda w: w.ask(random_tiny(num_classes=0)), RefusedError, "404: This model"),
    "labels of NaN": (lambda w: w.ask(not_finite()), RefusedError, "500: The model's answer is"),
    "a small image": (lambda w: w.ask(random_tiny(**ANY), body=TINY), RefusedError, "422: Image"),
    "five channels": (lambda w: application(random_tiny(channels=5)), ConfigError, "5 channels"),
    "no queue": (lambda w: Settings(max_queue=0), ConfigError, "max_queue=0"),
    "a star in a host": (lambda w: Settings(allowed_hosts=("a*.org",)), ConfigError, "'a*.org'"),
    "a taken port": (lambda w: w.serve_at_a_taken_port(), RefusedError, "cannot listen at this"),
    "no extra": (lambda w: w.serve_without_extra(), RefusedError, "pip install 'keras-vit-zoo[serve]'"),
    "an absent stage": (lambda w: w.serve("--stage", "block_99"), RefusedError, "block_99"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)


HEADERS = [
    (200, "Host", "LOCALHOST:8000 127.0.0.1 [::1]:8000 vit.example.org a.example.net"),
    (400, "Host", "evil.com:80 localhost.evil.com [: example.net.evil.com"),
    (200, "Origin", "http://127.0.0.1:1 http://localhost:3000"),
    (403, "Origin", "null http://6.6.6.6 http://["),
]


@pytest.mark.parametrize(("status", "header", "values"), HEADERS)
def test_hosts_and_sites_that_may_ask(address, image, status, header, values):
    """A stranger's page that reaches the port by its own name gets no answer."""
    for value in values.split():
        assert post(address, image, headers={header: value}).status_code == status, value
