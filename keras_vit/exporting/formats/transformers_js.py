"""The folder that transformers.js loads in a browser or in Node: ONNX files and JSON."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit import checkpoints
from keras_vit.exporting.formats import onnx, onnx_precision
from keras_vit.exporting.formats.base import Format
from keras_vit.exporting.plan import ExportPlan
from keras_vit.model import VisionTransformer

_JSON = ("config.json", "preprocessor_config.json")


def _describe(model: VisionTransformer, folder: Path) -> None:
    """Writes the JSON of transformers; raises `CheckpointError` where it cannot express a model."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        checkpoints.save(model, Path(beside) / "model", "transformers")
        for name in _JSON:
            (Path(beside) / "model" / name).rename(folder / name)


def _finish(
    folder: Path, plan: ExportPlan, calibration: list[np.ndarray] | None, facts: dict[str, Any]
) -> None:
    inside = folder / "onnx"
    inside.mkdir()
    for name in onnx.FORMAT.files:
        if (folder / name).exists():
            (folder / name).rename(inside / name)
    onnx_precision.quantise(inside / "model.onnx", inside / "model_quantized.onnx", plan.input)


FORMAT = Format(
    model="onnx/model.onnx",
    files=("onnx", *_JSON),
    writes=onnx.FORMAT.writes,
    reads=onnx.FORMAT.reads,
    write=onnx.write,
    describe=_describe,
    finish=_finish,
    open=lambda folder, plan: onnx.session(folder / "onnx" / "model.onnx"),
    open_int8=lambda folder, plan: onnx.session(folder / "onnx" / "model_quantized.onnx"),
    channels_first=True,
    input="pixel_values",
    outputs="logits",
    prepares=False,
    program="""\
import {{ pipeline, env }} from "@huggingface/transformers";

env.localModelPath = "..";  // the folder that holds this one
env.allowRemoteModels = false;
const classify = await pipeline("image-classification", {folder}, {{ dtype: "q8" }});
console.log(await classify("photo.jpg"));
""",
)
