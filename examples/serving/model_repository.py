"""Writes a model into the folder that a model server reads: Triton, OpenVINO or TensorFlow Serving.

python examples/serving/model_repository.py vit_digits repository --server triton
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import keras_vit
from keras_vit.support.arguments import Format

FORMATS: dict[str, Format] = {"triton": "onnx", "openvino": "openvino", "tensorflow": "saved_model"}

TRITON = """\
name: "vit"
platform: "onnxruntime_onnx"
max_batch_size: {batch}
input [{{ name: "{input}", data_type: TYPE_UINT8, dims: [ -1, -1, {channels} ] }}]
output [{{
  name: "{output}", data_type: TYPE_FP32, dims: [ {classes} ], label_filename: "labels.txt"
}}]
dynamic_batching {{ max_queue_delay_microseconds: 5000 }}
"""
"""Images of different sizes may come one after another; those of one batch have one size."""


def write(source: str, repository: Path, server: str, batch: int = 16) -> Path:
    """Writes `repository/vit/1/...`; returns the folder of the model."""
    model = keras_vit.VisionTransformer.from_preset(source)
    folder = repository / "vit"
    version = folder / "1"
    version.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        exported = keras_vit.export(model, Path(temporary) / "model", FORMATS[server])
        told = json.loads((exported.path / "export.json").read_text(encoding="utf-8"))
        if server == "tensorflow":  # the version's folder is the SavedModel
            shutil.copytree(exported.path / "model", version, dirs_exist_ok=True)
        else:
            for file in exported.path.glob("model.*"):
                shutil.copy(file, version)
        shutil.copy(exported.path / "labels.txt", folder)
    if server == "triton":
        text = TRITON.format(
            batch=batch,
            input=told["input"]["name"],
            output=told["output"],
            channels=told["input"]["shape"][-1],
            classes=model.prediction.num_answers,
        )
        (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source")
    parser.add_argument("repository", type=Path)
    parser.add_argument("--server", choices=FORMATS, default="triton")
    arguments = parser.parse_args()
    print(write(arguments.source, arguments.repository, arguments.server), "written")
