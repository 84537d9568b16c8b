"""What examples/serving writes runs in the libraries that the model servers stand on."""

import io
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer
from tests.helpers import random_tiny

FOLDER = Path(__file__).parents[2] / "examples" / "serving"
pytestmark = pytest.mark.filterwarnings("ignore")  # of converters


def example(name):
    """The functions of an example."""
    return runpy.run_path(str(FOLDER / f"{name}.py"))


def probabilities_by(server, version, images):
    if server == "tensorflow":
        import tensorflow as tf

        model = tf.saved_model.load(str(version))
        (answer,) = model.signatures["serving_default"](tf.constant(images)).values()
        return answer.numpy()
    import onnxruntime

    return onnxruntime.InferenceSession(version / "model.onnx").run(None, {"images": images})[0]


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("triton", marks=pytest.mark.on_backend("torch")),
        pytest.param("tensorflow", marks=pytest.mark.on_backend("tensorflow")),
    ],
)
def test_a_model_repository_answers_as_the_model(tmp_path, server):
    """Version 1 of the model takes pixels; labels and, for Triton, its configuration are there."""
    random_tiny(num_classes=3, class_names=tuple("abc")).save_to_preset(tmp_path / "preset")
    folder = example("model_repository")["write"](str(tmp_path / "preset"), tmp_path, server)
    images = np.random.default_rng(0).integers(0, 256, (4, 9, 9, 3), "uint8")
    result = probabilities_by(server, folder / "1", images)
    labels = (folder / "labels.txt").read_text().splitlines()
    expected = VisionTransformer.from_preset(tmp_path / "preset").classify(images, top=1)
    assert [labels[k] for k in result.argmax(axis=1)] == [answer[0][0] for answer in expected]
    if server == "triton":
        text = (folder / "config.pbtxt").read_text()
        assert 'name: "images", data_type: TYPE_UINT8, dims: [ -1, -1, 3 ]' in text
        assert 'name: "probabilities", data_type: TYPE_FP32, dims: [ 3 ]' in text


def test_the_client_speaks_each_protocol(tmp_path, model, image, address, monkeypatch):
    """`keras-vit serve` itself; of the servers that take pixels, the requests are compared."""
    client, path = example("client"), tmp_path / "digit.png"
    path.write_bytes(image)
    answer = client["keras_vit"](address, str(path))["predictions"][0]
    assert [(a["label"], a["probability"]) for a in answer] == model.classify(path, top=3)[0]
    sent = []
    monkeypatch.setattr(
        "urllib.request.urlopen", lambda request, timeout: sent.append(request) or io.BytesIO(b"{}")
    )
    for protocol in ("kserve", "tensorflow"):
        client[protocol]("http://example.org", str(path))
    bodies = {request.selector: json.loads(request.data) for request in sent}
    pixels = np.asarray(Image.open(path).convert("RGB"))[None]
    (inputs,) = bodies["/v2/models/vit/infer"]["inputs"]
    assert inputs["shape"] == [1, 8, 8, 3] and inputs["data"] == pixels.ravel().tolist()
    assert bodies["/v1/models/vit:predict"]["instances"] == pixels.tolist()
