"""OpenVINO's intermediate representation, model.xml and model.bin, read from the ONNX file."""

import contextlib
import io
import logging
from pathlib import Path

import numpy as np

from keras_vit.exporting.formats import onnx
from keras_vit.exporting.formats.base import Format, Run
from keras_vit.exporting.plan import ExportPlan


def _finish(folder: Path, plan: ExportPlan) -> None:
    import openvino

    model = openvino.convert_model(folder / "model.onnx")
    if plan.precision == "int8":
        import nncf

        nncf.set_log_level(logging.ERROR)
        with contextlib.redirect_stdout(io.StringIO()):  # its progress bars
            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=plan.precision == "float16")
    for name in onnx.FORMAT.files:
        (folder / name).unlink(missing_ok=True)


def _open(folder: Path, plan: ExportPlan) -> Run:
    import openvino

    # Accelerators compute in fewer bits by themselves; the comparison is of float32.
    model = openvino.Core().compile_model(
        folder / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )

    return lambda images: np.asarray(model(images)[0])


FORMAT = Format(
    model="model.xml",
    files=("model.xml", "model.bin"),
    writes={"torch": "torch", "onnx": "export", "onnxscript": "export", "openvino": "openvino"},
    reads={"openvino": "openvino"},
    write=onnx.write,
    finish=_finish,
    open=_open,
    precisions=("float32", "float16", "int8"),
    quantises={"nncf": "nncf"},
    program="""\
import numpy as np
import openvino

model = openvino.Core().compile_model("model.xml", "CPU")
{images}
outputs = model(images)[0]
""",
)
