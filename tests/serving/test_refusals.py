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
    "deep JSON": (b"[" * 40_000, JSON, "400: body: "),
    "JSON without a list": (b'{"images": []}', JSON, "400: body: "),
    "no base64": (b'["", "!"]', JSON, "400: body.1: "),
    "too many images": (b'["","","","","","","","",""]', JSON, "413: The request has more than 8"),
    "a form without its end": (2 * FILE, FORM, "400: The form cannot be read: The boundary"),
    "zero labels": (DIGIT, {"params": {"top": 0}}, "422: top='0'"),
    "another host": (DIGIT, {"headers": {"Host": "evil.com"}}, "400: 'evil.com' is not a name"),
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
EMBEDDINGS = {
    "an address": (
        {"input": "https://example.org/cat.png"},
        "400: body.input.0: ",
    ),
    "tokens": ({"input": [1, 2]}, "400: body.input.0: "),
    "a data URL of a text": ({"input": ["data:text/plain;base64,YQ=="]}, "embeds no text"),
    "a data URL without base64": ({"input": ["data:image/png;base64,!"]}, "400: body.input.0: "),
    "a data URL of no image": ({"input": ["data:image/png;base64,YQ=="]}, "415: Image 1: not a"),
    "an empty input": ({"input": []}, "400: The request holds no image"),
    "another model": (
        {"model": "clip"},
        "400: model='clip', dimensions=None: this server has only",
    ),
    "fewer dimensions": (
        {"dimensions": 8},
        "400: model='vit_digits', dimensions=8: this server has",
    ),
    "more embeddings": (
        {"input": 9 * ["data:image/png;base64,"]},
        "413: The request has more than 8",
    ),
}
REFUSALS |= {
    name: (lambda w, fields=fields: w.embed(**fields), RefusedError, fragment)
    for name, (fields, fragment) in EMBEDDINGS.items()
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
    "no extra": (
        lambda w: w.serve_without_extra(),
        RefusedError,
        "pip install 'keras-vit-zoo[serve]'",
    ),
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
