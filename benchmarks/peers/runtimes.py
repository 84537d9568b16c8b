"""timm's model and keras_vit's in other runtimes, as their users export them."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import Job, Step


def make(job: Job, model: str, runtime: str) -> Step:
    """A forward pass of `"timm"` or `"keras_vit"` in a runtime, a key of `RUNTIMES`."""
    with tempfile.TemporaryDirectory() as folder:
        file = (_timm if model == "timm" else _keras_vit)(job, Path(folder))
        run = RUNTIMES[runtime](file, job.dtype)
    side = job.size.image_size
    shape = (job.batch, 3, side, side) if model == "timm" else (job.batch, side, side, 3)
    images = np.random.default_rng(0).standard_normal(shape, dtype="float32")

    def forward(steps: int) -> None:
        for _ in range(steps):
            run(images)

    forward(2)
    return forward


def _timm(job: Job, folder: Path) -> Path:
    import torch

    from benchmarks.peers.torch_native import timm_model

    images = torch.zeros(job.batch, 3, job.size.image_size, job.size.image_size)
    program = torch.onnx.export(timm_model(job.size).eval(), (images,), dynamo=True, verbose=False)
    program.save(folder / "model.onnx")
    return folder / "model.onnx"


def _keras_vit(job: Job, folder: Path) -> Path:
    import keras_vit

    model = keras_vit.VisionTransformer(**job.size.fields())
    keras_vit.export(
        model,
        folder / "model",
        "onnx",
        preprocessing=False,
        outputs="logits",
        batch=job.batch,
        verify=False,
    )
    return folder / "model" / "model.onnx"


def _onnxruntime(file: Path, dtype: str) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images})[0]


def _openvino(file: Path, dtype: str) -> Any:
    import openvino

    hint = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    compiled = openvino.Core().compile_model(
        openvino.convert_model(file),
        "CPU",
        {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY"},
    )
    request = compiled.create_infer_request()
    return lambda images: request.infer([images], share_inputs=True)[0]


RUNTIMES = {"onnxruntime": _onnxruntime, "openvino": _openvino}
"""By name, the function that opens a file and returns what runs images."""
