"""OpenAI's own client gets the features of images from `/v1/embeddings`, and sees refusals."""

import numpy as np
import openai
import pytest
import requests

from keras_vit.evaluation import features
from tests.digits import digits, encoded
from tests.helpers import random_tiny
from tests.serving.live import data_url, served


def connected(address, **options):
    return openai.OpenAI(base_url=f"{address}/v1", api_key="unused", max_retries=0, **options)


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float", "dimensions": 64}])
def test_openai_s_client_gets_the_features_of_images(address, model, options):
    """In the order of the images, as base64, which the client asks for by default, or as floats."""
    images = [encoded(image[..., 0]) for image in digits()[1][:3]]
    with connected(address) as client:
        answer = client.embeddings.create(
            model="vit_digits", input=list(map(data_url, images)), **options
        )
    assert (answer.model, answer.usage.total_tokens) == ("vit_digits", 3)
    assert [row.index for row in answer.data] == [0, 1, 2]
    found = np.array([row.embedding for row in answer.data], "float32")
    np.testing.assert_allclose(found, features(model, images).values, rtol=0, atol=1e-5)


def test_openai_s_client_sends_one_image_without_a_list(address, model, image):
    with connected(address) as client:
        answer = client.embeddings.create(model="vit_digits", input=data_url(image))
    expected = features(model, image).values
    np.testing.assert_array_equal(np.array([answer.data[0].embedding], "float32"), expected)


def test_openai_s_client_shows_the_sentence_of_a_refusal(address, image):
    """Also if the name of the server is refused, which happens before a route is chosen."""
    client, refused = connected(address), openai.BadRequestError
    with client, pytest.raises(refused, match="downloads no images and embeds no text"):
        client.embeddings.create(model="vit_digits", input="a cat")
    client = connected(address, default_headers={"Host": "evil.com"})
    with client, pytest.raises(refused, match=r"'evil\.com' is not a name"):
        client.embeddings.create(model="vit_digits", input=data_url(image))


def test_a_server_of_tokens_has_no_embeddings_for_openai_s_client(image):
    """A stage without a pooling gives a matrix for each image; /embed answers with it."""
    model = random_tiny(channels=1)
    with (
        served(model, "block_0") as address,
        connected(address) as client,
        pytest.raises(openai.BadRequestError, match=r"have the shape \(5, 16\)"),
    ):
        client.embeddings.create(model=model.title, input=data_url(image))


def test_the_interface_describes_every_route_and_its_examples_are_answered(address):
    """Each route has texts and an example of its answer; the example bodies are real requests."""
    document = requests.get(f"{address}/openapi.json", timeout=60).json()
    paths = document["paths"]
    assert set(paths) == {
        *("/classify", "/embed", "/explain", "/healthz", "/metadata", "/v1/embeddings")
    }
    assert document["info"]["title"] == "keras_vit: vit_digits"
    assert "at most 50000 bytes and 8 images" in document["info"]["description"]
    assert "$" not in str(document).replace("$ref", "")  # no fact is missing

    def find(node):
        """The part of the document that a reference names."""
        for name in node.get("$ref", "#").split("/")[1:]:
            node = document[name] if "$ref" in node else node[name]
        return node

    for path, methods in paths.items():
        for method, route in methods.items():
            assert route["summary"] and route["description"], path
            assert all(each["description"] for each in route.get("parameters", []))
            answers = [find(answer) for answer in route["responses"].values()]
            assert all(answer["description"] and answer["content"] for answer in answers)
            bodies = [None]
            if "requestBody" in route:
                content = find(route["requestBody"])["content"]["application/json"]
                each = [example["value"] for example in content.get("examples", {}).values()]
                bodies = each or [content["example"]]
            for body in bodies:
                answer = requests.request(method, address + path, json=body, timeout=60)
                assert answer.status_code == 200, answer.text
                shown = route["responses"]["200"]["content"]
                (kind,) = shown
                assert answer.headers["Content-Type"] == kind
                if kind == "application/json":
                    assert set(shown[kind]["example"]) <= set(answer.json()), path
