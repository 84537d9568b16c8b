"""Writes the folder that transformers.js loads in a browser or in Node: ONNX files and JSON.

A model with a head is exported as its classifier, one without a head as its encoder.
"""

import dataclasses
import json
import tempfile
from pathlib import Path

import numpy as np

from keras_vit import checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.errors import ExportError
from keras_vit.exporting.formats import onnx
from keras_vit.exporting.plan import ExportPlan, Format
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.files import write_json

_CONFIG, _PROCESSOR = "config.json", "preprocessor_config.json"


_CLASSES = {name: place for d in DIALECTS.values() for name, place in d.web.items()}


def _describe(model: VisionTransformer, folder: Path, plan: ExportPlan) -> ExportPlan:
    """Writes the JSON of transformers; returns the plan with the outputs of the model's class.

    Raises:
        CheckpointError: transformers cannot express the model.
        ExportError: transformers.js has no such class.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        checkpoints.save(model, Path(beside) / "model", "transformers")
        for name in (_CONFIG, _PROCESSOR):
            (Path(beside) / "model" / name).rename(folder / name)
    config = _read_config(folder)
    (name,) = config["architectures"]
    if name not in _CLASSES:
        raise ExportError(
            f"format='transformers_js': transformers.js has no {name}; it has "
            f"{', '.join(_CLASSES)}."
        )
    if (model_type := _CLASSES[name].model_type) is not None:
        write_json(folder / _CONFIG, {**config, "model_type": model_type})
    last = model.config.num_layers - 1
    stages = {key: stage.format(last=last) for key, stage in _CLASSES[name].outputs.items()}
    return dataclasses.replace(plan, stages=stages)


def _read_config(folder: Path) -> dict[str, list[str]]:
    return dict(json.loads((folder / _CONFIG).read_text(encoding="utf-8")))


def _path(folder: Path, suffix: str = "") -> Path:
    """Returns the path of an ONNX file, whose name is that of the model's class."""
    (name,) = _read_config(folder)["architectures"]
    return folder / "onnx" / f"{_CLASSES[name].file}{suffix}.onnx"


def _finish(folder: Path, plan: ExportPlan, calibration: list[np.ndarray] | None) -> None:
    path = _path(folder)
    path.parent.mkdir()
    (folder / "model.onnx").rename(path)
    if (folder / "model.onnx.data").exists():
        (folder / "model.onnx.data").rename(path.parent / "model.onnx.data")
    onnx.quantise(path, _path(folder, "_quantized"), plan.input)


FORMAT = Format(
    model="onnx",
    beside=(_CONFIG, _PROCESSOR),
    writes=onnx.FORMAT.writes,
    reads=onnx.FORMAT.reads,
    write=onnx.write,
    describe=_describe,
    finish=_finish,
    open=lambda folder: onnx.session(_path(folder)),
    open_int8=lambda folder: onnx.session(_path(folder, "_quantized")),
    channels_first=True,
    input="pixel_values",
    prepares=False,
    program="""\
import {{ pipeline, env }} from "@huggingface/transformers";

env.localModelPath = "..";  // the folder that holds this one
env.allowRemoteModels = false;
const run = await pipeline("{task}", {folder}, {{ dtype: "q8" }});
console.log(await run("photo.jpg"));
""",
)
