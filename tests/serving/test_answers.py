"""A server answers what the model answers, to one client and to many at once."""

import base64
import io
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
import requests
from PIL import Image
from starlette.testclient import TestClient

from keras_vit import explain
from keras_vit.cli import main
from keras_vit.evaluation import features
from keras_vit.explanation import brightness, patch_colours
from tests.digits import digits, encoded
from tests.helpers import random_tiny
from tests.serving.live import labels, post, served


@pytest.fixture(scope="module")
def images():
    """Eight digits as PNG files."""
    return [encoded(image[..., 0]) for image in digits()[1][:8]]


def post_list(address, images):
    """A request with a JSON list of images."""
    listed = [base64.b64encode(image).decode() for image in images]
    return requests.post(f"{address}/classify", json=listed, timeout=60)


def metadata(address):
    return requests.get(f"{address}/metadata", timeout=60).json()


def vectors(address, image):
    return post(address, image, "embed").json()["embeddings"]


def picture(address, image):
    response = post(address, image, "explain")
    assert response.headers["Content-Type"] == "image/png", response.text
    return np.asarray(Image.open(io.BytesIO(response.content))) / 255


def assert_same_labels(found, expected):
    """Fails unless probabilities, of batches of other sizes, are those of `classify`."""
    for answer, own in zip(found, expected, strict=True):
        assert [name for name, _ in answer] == [name for name, _ in own]
        assert dict(answer) == pytest.approx(dict(own), abs=1e-6)


@pytest.mark.every_backend
def test_bytes_get_exactly_the_values_of_the_model(address, model, images):
    """Labels and every bit of every probability, and the features of the same image."""
    for image in images[:3]:
        assert labels(post(address, image, params={"top": 3})) == model.classify(image, top=3)
    expected = features(model, images[0]).values
    np.testing.assert_array_equal(np.array(vectors(address, images[0]), "float32"), expected)


def test_images_of_many_clients_share_batches(model, images, monkeypatch):
    """Sixteen clients at once: every answer is right; a batch has several images, one function."""
    expected, compute = model.classify(2 * images), mock.Mock(side_effect=model.probabilities)
    monkeypatch.setattr(model, "probabilities", compute)
    with (
        served(model, max_batch=8, batch_wait=0.05) as address,
        ThreadPoolExecutor(16) as clients,
    ):
        embedded = clients.map(lambda image: vectors(address, image)[0], images)
        answers = list(clients.map(lambda image: labels(post(address, image))[0], 2 * images))
        wanted = features(model, images).values
        np.testing.assert_allclose(list(embedded), wanted, rtol=0, atol=1e-5)
    assert max(len(call.args[0]) for call in compute.call_args_list) > 1
    assert_same_labels(answers, expected)


def test_several_images_in_one_request(address, model, images):
    """A form of files and a JSON list of base64 are answered in order."""
    files = [("images", (f"{k}.png", image, "image/png")) for k, image in enumerate(images)]
    form = requests.post(f"{address}/classify", files=files, timeout=60)
    for response in (form, post_list(address, images)):
        assert_same_labels(labels(response), model.classify(images))


def test_health_and_metadata_describe_the_server(address, model):
    """Watchers such as `wget --spider` ask by HEAD."""
    assert requests.head(f"{address}/healthz", timeout=60).status_code == 200
    assert requests.get(f"{address}/healthz", timeout=60).json()["status"] == "ok"
    facts = metadata(address)
    assert facts["class_names"] == list(model.class_names)
    assert facts["image_size"] == list(model.config.image_size)


def test_a_server_embeds_by_the_stage_and_the_pooling_it_was_started_with(model, images):
    """Metadata name them."""
    with served(model, "block_1", "token_and_mean") as address:
        wanted = features(model, images[0], "block_1", pooling="token_and_mean").values
        np.testing.assert_allclose(vectors(address, images[0]), wanted, rtol=0, atol=1e-5)
        assert metadata(address)["embeds"] == "block_1/token_and_mean"


def test_an_explained_image_is_light_where_its_class_has_evidence(address, model, images):
    """The PNG is the prepared image times the brightness of the relevance, enlarged."""
    light = brightness(explain(model, images[:1]).patches)[0].repeat(4, 0).repeat(4, 1)
    pixels = model.preprocessor.pixels(model.preprocessor(images[:1]))[0][..., 0]
    expected = (pixels * (0.15 + 0.85 * light)).repeat(16, 0).repeat(16, 1)
    np.testing.assert_allclose(picture(address, images[0]), expected, rtol=0, atol=0.02)


def test_a_model_without_classes_shows_the_components_of_its_patches(images):
    model = random_tiny(num_classes=0)
    with served(model) as address:
        assert metadata(address)["explains"] == "components"
        shown = picture(address, images[0])
    colours = patch_colours(model.tokens(images[:1]).patches)[0]
    high, wide = np.array(shown.shape[:2]) // colours.shape[:2]
    middles = shown[high // 2 :: high, wide // 2 :: wide]
    np.testing.assert_allclose(middles, colours, rtol=0, atol=0.01)


def test_a_model_of_any_size_answers_each_size():
    """Images of different sizes go through the model in different batches."""
    model, rng = random_tiny(image_size=None, position_grid=(3, 3)), np.random.default_rng(0)
    sides = [(16, 16), (24, 16), (16, 24)]
    photos = [encoded(rng.integers(0, 256, (*side, 3), "uint8")) for side in sides]
    with served(model) as address:
        answers = labels(post_list(address, photos))
    assert_same_labels(answers, [model.classify(photo)[0] for photo in photos])


def test_a_multi_label_model_answers_with_those_above_their_threshold(images):
    """All of them, or at most `top`; the metadata have the thresholds."""
    model = random_tiny(channels=1, num_classes=10, task="multi_label")
    with served(model) as address:
        answers = labels(post(address, images[0])) + labels(post(address, images[1]))
        answers += labels(post(address, images[0], params={"top": 1}))
        assert metadata(address)["thresholds"] == [0.5] * 10
    assert_same_labels(answers, model.classify(images[:2]) + model.classify(images[0], top=1))


def test_the_model_is_loaded_as_the_options_say(monkeypatch, image):
    """In 16 bits, for images of another size, with the mean of a block as features."""
    served = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, *_: served.append(server.config.app))
    options = ("--dtype", "mixed_bfloat16", "--image-size", "12", "--stage", "block_1")
    assert main(["serve", "vit_digits", "--port", "0", *options, "--pooling", "gap"]) == 0
    with TestClient(served[0], base_url="http://localhost") as client:
        facts = client.get("/metadata").json()
        answer = client.post("/embed", content=image).json()
    found = [facts[name] for name in ("dtype", "image_size", "name", "embeds")]
    assert found == ["mixed_bfloat16", [12, 12], "vit_digits", "block_1/gap"]
    assert len(answer["embeddings"][0]) == 64
