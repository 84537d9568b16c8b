"""What examples/serving writes runs in the libraries that the model servers stand on."""

import json
import runpy
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import VisionTransformer
from tests.digits import digits
from tests.helpers import random_tiny
from tests.runs import times
from tests.serving.live import served

FOLDER = Path(__file__).parents[2] / "examples" / "serving"
pytestmark = pytest.mark.filterwarnings("ignore")  # of converters
BACKEND = keras.backend.backend()


def example(name):
    """The functions of an example."""
    return runpy.run_path(str(FOLDER / f"{name}.py"))


def probabilities_by(server, version, images):
    if server == "triton":
        import onnxruntime

        return onnxruntime.InferenceSession(version / "model.onnx").run(None, {"images": images})[0]
    if server == "openvino":
        import openvino

        settings = {"INFERENCE_PRECISION_HINT": "f32"}
        return openvino.Core().compile_model(version / "model.xml", "CPU", settings)(images)[0]
    import tensorflow as tf

    model = tf.saved_model.load(str(version))
    (answer,) = model.signatures["serving_default"](tf.constant(images)).values()
    return answer.numpy()


SERVERS = {"torch": ["triton", "openvino"][: times(1, 2)], "tensorflow": ["tensorflow"], "jax": []}
"""Those whose format the backend writes; OpenVINO's folder is made as Triton's."""


@pytest.mark.parametrize("server", SERVERS[BACKEND])
def test_a_model_repository_answers_as_the_model(tmp_path, server):
    """Version 1 of the model takes pixels; labels and, for Triton, its configuration are there."""
    preset = tmp_path / "preset"
    random_tiny(channels=1, num_classes=10, class_names=tuple("0123456789")).save_to_preset(preset)
    folder = example("model_repository")["write"](str(preset), tmp_path, server)
    images = digits()[1][:4]
    result = probabilities_by(server, folder / "1", images)
    model = VisionTransformer.from_preset(preset)
    expected = [answer[0][0] for answer in model.classify(images, top=1)]
    labels = (folder / "labels.txt").read_text().splitlines()
    assert [labels[k] for k in result.argmax(axis=1)] == expected
    if server == "triton":
        text = (folder / "config.pbtxt").read_text()
        assert 'name: "images", data_type: TYPE_UINT8, dims: [ -1, -1, 1 ]' in text
        assert 'name: "probabilities", data_type: TYPE_FP32, dims: [ 10 ]' in text


def test_the_client_speaks_each_protocol(tmp_path):
    """`keras-vit serve` itself, and a stand-in for the servers that take pixels."""
    client = example("client")
    path = tmp_path / "digit.png"
    Image.fromarray(digits()[1][0, ..., 0]).save(path)
    model = VisionTransformer.from_preset("vit_digits")
    with served(model) as address:
        answer = client["keras_vit"](address, str(path))["predictions"][0]
    assert [(a["label"], a["probability"]) for a in answer] == model.classify(path, top=3)[0]
    bodies = {}

    class StandIn(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies[self.path] = json.loads(body)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), StandIn) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for protocol in ("kserve", "tensorflow"):
            client[protocol](address, str(path))
        server.shutdown()
    pixels = np.asarray(Image.open(path).convert("RGB"))[None]
    (sent,) = bodies["/v2/models/vit/infer"]["inputs"]
    assert sent["shape"] == [1, 8, 8, 3] and sent["data"] == pixels.ravel().tolist()
    assert bodies["/v1/models/vit:predict"]["instances"] == pixels.tolist()


def test_a_space_answers_with_the_classes_of_the_model(tmp_path, monkeypatch):
    """Its page runs on this machine; a client of gradio asks it for the digit 8."""
    pytest.importorskip("gradio", reason="gradio, which a Space installs, is not installed")
    import gradio_client

    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    monkeypatch.delenv("MODEL", raising=False)
    page = example("space")["page"]
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True)
    try:
        client = gradio_client.Client(address, verbose=False, download_files=str(tmp_path))
        file = gradio_client.handle_file(keras_vit.data.example_image())
        answer = client.predict(file, api_name="/classify")
    finally:
        page.close()
    assert answer["label"] == "8"
    assert len(answer["confidences"]) == 5
