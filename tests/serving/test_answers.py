"""A server answers what the model answers, to one client and to many at once."""

import asyncio
import base64
import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
from PIL import Image

from keras_vit import explain
from keras_vit.errors import ConfigError
from keras_vit.evaluation import features
from keras_vit.explanation import brightness, patch_colours
from keras_vit.serving import application
from keras_vit.serving.batching import Batcher
from tests.digits import digits, encoded
from tests.helpers import random_tiny
from tests.serving.live import labels, post, served

# What surrounds the model knows no backend.
torch_alone = pytest.mark.on_backend("torch")


@pytest.fixture(scope="module")
def images():
    """Eight digits as PNG files."""
    return [encoded(image[..., 0]) for image in digits()[1][:8]]


def test_bytes_get_exactly_the_numbers_of_classify(address, model, images):
    """Labels and every bit of every probability, and the features of the same image."""
    for image in images[:3]:
        assert labels(post(address, image, params={"top": 3})) == model.classify(image, top=3)
    answer = post(address, images[0], "embed").json()["embeddings"]
    np.testing.assert_array_equal(np.array(answer, "float32"), features(model, images[0]).values)


def test_images_of_many_clients_share_batches(model, images, monkeypatch):
    """Sixteen clients at once: every answer is right, and batches held several images."""
    sizes, original = [], model.probabilities

    def counted(batch, batch_size=None, **word):
        sizes.append(len(batch))
        return original(batch, **word)

    expected = [model.classify(image)[0] for image in images]
    monkeypatch.setattr(model, "probabilities", counted)
    with (
        served(model, max_batch=8, batch_wait=0.05) as address,
        ThreadPoolExecutor(16) as clients,
    ):
        answers = list(clients.map(lambda image: labels(post(address, image))[0], 2 * images))
    assert max(sizes) > 1
    for answer, wanted in zip(answers, 2 * expected, strict=True):
        assert [name for name, _ in answer] == [name for name, _ in wanted]
        assert dict(answer) == pytest.approx(dict(wanted), abs=1e-6)


@torch_alone
@pytest.mark.parametrize("way", ["form", "list"])
def test_several_images_in_one_request(address, model, images, way):
    """A form of files and a JSON list of base64 are answered in order."""
    if way == "form":
        files = [("images", (f"{k}.png", image, "image/png")) for k, image in enumerate(images)]
        response = requests.post(f"{address}/classify", files=files, timeout=60)
    else:
        listed = [base64.b64encode(image).decode() for image in images]
        response = requests.post(f"{address}/classify", json=listed, timeout=60)
    answers = labels(response)
    for answer, expected in zip(answers, model.classify(images), strict=True):
        assert dict(answer) == pytest.approx(dict(expected), abs=1e-6)


@torch_alone
def test_health_metadata_and_openapi_describe_the_server(address, model):
    """Health, metadata with labels and limits, and OpenAPI with the bodies that are taken."""
    assert requests.get(f"{address}/healthz", timeout=60).json()["status"] == "ok"
    metadata = requests.get(f"{address}/metadata", timeout=60).json()
    assert metadata["class_names"] == list(model.class_names)
    assert metadata["image_size"] == list(model.config.image_size)
    assert metadata["limits"]["images_waiting"] == 128
    paths = requests.get(f"{address}/openapi.json", timeout=60).json()["paths"]
    assert {"/classify", "/embed", "/explain", "/healthz", "/metadata"} == set(paths)
    content = paths["/classify"]["post"]["requestBody"]["content"]
    assert {"application/octet-stream", "multipart/form-data", "application/json"} == set(content)
    statuses = {int(status) for status in paths["/classify"]["post"]["responses"]}
    assert statuses == {200, 400, 408, 413, 415, 422, 429, 500, 503}


@torch_alone
def test_a_server_embeds_by_the_stage_and_the_pooling_it_was_started_with(model, images):
    """Metadata names them; a model that returns tokens gives a vector by a pooling."""
    with served(model, "block_1", "token_and_mean") as address:
        answer = post(address, images[0], "embed").json()["embeddings"]
        wanted = features(model, images[0], "block_1", pooling="token_and_mean")
        np.testing.assert_allclose(answer, wanted.values, rtol=0, atol=1e-5)
        metadata = requests.get(f"{address}/metadata", timeout=60).json()
        assert metadata["embeds"] == "block_1/token_and_mean"
    tokens = random_tiny(num_classes=0, pool={"kind": "unpooled"})
    with served(tokens, pooling="gap") as address:
        (vector,) = post(address, images[0], "embed").json()["embeddings"]
        assert np.shape(vector) == (tokens.config.hidden_size,)
    with pytest.raises(ConfigError, match="has no pooling='gap'"):
        application(model, stage="pre_logits", pooling="gap")


@torch_alone
def test_a_model_without_a_head_embeds(images):
    """/classify names the route that such a model has."""
    with served(random_tiny(num_classes=0)) as address:
        refused = post(address, images[0])
        assert refused.status_code == 404 and "/embed" in refused.json()["detail"]
        assert len(post(address, images[0], "embed").json()["embeddings"][0]) > 1


def picture_of(response):
    assert response.headers["Content-Type"] == "image/png", response.text
    return np.asarray(Image.open(io.BytesIO(response.content))) / 255


def test_an_explained_image_is_light_where_its_class_has_evidence(address, model, images):
    """The PNG is the prepared image times the brightness of the relevance, enlarged."""
    shown = picture_of(post(address, images[0], "explain"))
    light = brightness(explain(model, images[:1]).patches)[0].repeat(4, 0).repeat(4, 1)
    pixels = model.preprocessor.pixels(model.preprocessor(images[:1]))[0][..., 0]
    expected = (pixels * (0.15 + 0.85 * light)).repeat(16, 0).repeat(16, 1)
    np.testing.assert_allclose(shown, expected, rtol=0, atol=0.02)


@torch_alone
@pytest.mark.parametrize("fields", [{"num_classes": 0}, {"task": "regression"}])
def test_a_model_without_classes_shows_the_components_of_its_patches(images, fields):
    """An encoder, and a model of numbers."""
    model = random_tiny(**fields)
    with served(model) as address:
        assert requests.get(f"{address}/metadata", timeout=60).json()["explains"] == "components"
        shown = picture_of(post(address, images[0], "explain"))
    colours = patch_colours(model.tokens(images[:1]).patches)[0]
    high, wide = (
        side // size for side, size in zip(shown.shape[:2], colours.shape[:2], strict=True)
    )
    middles = shown[high // 2 :: high, wide // 2 :: wide]
    np.testing.assert_allclose(middles, colours, rtol=0, atol=0.01)


@torch_alone
def test_a_model_of_any_size_answers_each_size_or_says_why_not(model):
    """Images of different sizes go through the model in different batches."""
    any_size = random_tiny(image_size=None, position_grid=(3, 3))
    rng = np.random.default_rng(0)
    sides = [(16, 16), (24, 16), (16, 24)]
    photos = [encoded(rng.integers(0, 256, (*side, 3), "uint8")) for side in sides]
    with served(any_size) as address:
        listed = [base64.b64encode(photo).decode() for photo in photos]
        answers = labels(requests.post(f"{address}/classify", json=listed, timeout=60))
        for answer, photo in zip(answers, photos, strict=True):
            (expected,) = any_size.classify(photo)
            assert dict(answer) == pytest.approx(dict(expected), abs=1e-6)
        refused = post(address, encoded(np.zeros((2, 2, 3), "uint8")))
        assert refused.status_code == 422, refused.text


@torch_alone
def test_a_batch_starts_when_it_is_full_and_mixes_no_functions():
    """The first image waits for a second one of its function; a cancelled one is left out."""
    batches = []

    def record(name):
        def run(batch):
            batches.append((name, batch.tolist()))
            return batch

        return run

    async def submit():
        batcher = Batcher({"a": record("a"), "b": record("b")}, largest=2, wait=0.2)
        tasks = [
            asyncio.create_task(batcher.compute(name, np.array(k)))
            for k, name in enumerate("abaabb")
        ]
        await asyncio.sleep(0)
        tasks[3].cancel()
        rows = await asyncio.gather(*tasks, return_exceptions=True)
        batcher.close()
        return rows

    rows = asyncio.run(submit())
    assert isinstance(rows.pop(3), asyncio.CancelledError)
    assert rows == [0, 1, 2, 4, 5]
    assert batches == [("a", [0, 2]), ("b", [1, 4]), ("b", [5])]


def test_a_multi_label_model_answers_with_those_above_their_threshold(images):
    """All of them, or at most `top`; the metadata have the thresholds."""
    model = random_tiny(channels=1, num_classes=10, task="multi_label")
    with served(model) as started:
        answers = labels(post(started, images[0])) + labels(post(started, images[1]))
        one = labels(post(started, images[0], params={"top": 1}))
        expected = model.classify(images[:2]) + model.classify(images[0], top=1)
        for answer, own in zip(answers + one, expected, strict=True):  # of batches of other sizes
            assert dict(answer) == pytest.approx(dict(own), rel=1e-6)
            assert [name for name, _ in answer] == [name for name, _ in own]
        metadata = requests.get(f"{started}/metadata", timeout=30).json()
    assert metadata["thresholds"] == [0.5] * 10
