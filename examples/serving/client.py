"""Asks a model server for the label of a photograph; keras_vit and Keras are not needed.

python examples/serving/client.py http://127.0.0.1:8000 photo.jpg --protocol keras_vit
"""

import argparse
import json
import urllib.request
from typing import Any

import numpy as np
from PIL import Image


def keras_vit(address: str, path: str) -> Any:
    """`keras-vit serve` takes the bytes of the file, and prepares them exactly."""
    with open(path, "rb") as file:  # noqa: PTH123  a program of the standard library alone
        return _answer(f"{address}/classify?top=3", file.read(), "application/octet-stream")


def kserve(address: str, path: str) -> Any:
    """Triton and OpenVINO Model Server take pixels, by the Open Inference Protocol."""
    pixels = _pixels(path)
    images = {
        "name": "images",
        "shape": pixels.shape,
        "datatype": "UINT8",
        "data": pixels.ravel().tolist(),
    }
    return _answer(f"{address}/v2/models/vit/infer", json.dumps({"inputs": [images]}).encode())


def tensorflow(address: str, path: str) -> Any:
    """TensorFlow Serving takes pixels as nested lists."""
    body = json.dumps({"instances": _pixels(path).tolist()}).encode()
    return _answer(f"{address}/v1/models/vit:predict", body)


def _pixels(path: str) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))[None]


def _answer(address: str, body: bytes, kind: str = "application/json") -> Any:
    request = urllib.request.Request(address, body, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


PROTOCOLS = {"keras_vit": keras_vit, "kserve": kserve, "tensorflow": tensorflow}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("address")
    parser.add_argument("image")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="keras_vit")
    arguments = parser.parse_args()
    print(json.dumps(PROTOCOLS[arguments.protocol](arguments.address, arguments.image), indent=2))
