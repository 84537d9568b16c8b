"""OpenVINO's intermediate representation, model.xml and model.bin, read from the ONNX file."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.exporting.formats import onnx
from keras_vit.exporting.formats.base import Format, Run
from keras_vit.exporting.plan import Plan


def _finish(
    folder: Path, plan: Plan, calibration: list[np.ndarray] | None, facts: dict[str, Any]
) -> None:
    import openvino

    model = openvino.convert_model(folder / "model.onnx")
    for key in ("labels", "protocol"):
        model.set_rt_info(json.dumps(facts[key]), ["model_info", key])
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=plan.precision == "float16")
    for name in onnx.FORMAT.files:
        (folder / name).unlink(missing_ok=True)


def _open(folder: Path, plan: Plan) -> Run:
    import openvino

    # Accelerators compute in fewer bits by themselves; the comparison is of float32.
    model = openvino.Core().compile_model(
        folder / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )

    def run(images: np.ndarray) -> np.ndarray:
        outputs: np.ndarray = model(images)[0]
        return outputs

    return run


FORMAT = Format(
    model="model.xml",
    files=("model.xml", "model.bin"),
    writes={"torch": "torch", "onnx": "export", "onnxscript": "export", "openvino": "openvino"},
    reads={"openvino": "openvino"},
    write=onnx.write,
    finish=_finish,
    open=_open,
    precisions=("float32", "float16"),
    program="""\
import numpy as np
import openvino

model = openvino.Core().compile_model("model.xml", "CPU")
{images}
outputs = model(images)[0]
""",
)
