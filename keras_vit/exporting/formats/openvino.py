"""Writes model.xml and model.bin, which OpenVINO converts from the ONNX file."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.exporting.formats import onnx
from keras_vit.exporting.plan import ExportPlan, Format


def _finish(folder: Path, plan: ExportPlan, calibration: list[np.ndarray] | None) -> None:
    import openvino

    # `openvino.convert_model` sends telemetry from a fork of this process.
    model = openvino.Core().read_model(folder / "model.onnx")
    if plan.precision == "int8":
        model = _quantised(model, calibration)
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=plan.precision == "float16")
    for name in (onnx.FORMAT.model, *onnx.FORMAT.further):
        (folder / name).unlink(missing_ok=True)


def _quantised(model: Any, calibration: list[np.ndarray] | None) -> Any:
    """Quantises a model to int8: its weights, and with images its activations too.

    The preprocessing stays float32.
    """
    import nncf

    # nncf.set_log_level would change handlers that the logger shares with others.
    with onnx.errors_alone("nncf"), contextlib.redirect_stdout(io.StringIO()):  # its progress bars
        if calibration is None:
            return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        return nncf.quantize(
            model,
            nncf.Dataset(calibration),
            subset_size=len(calibration),
            model_type=nncf.ModelType.TRANSFORMER,
            ignored_scope=nncf.IgnoredScope(names=_preparation(model)),
            # Weights of 7 bits in every layer, as in `onnx._quantise`; the default is the first.
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                overflow_fix=nncf.OverflowFix.ENABLE
            ),
        )


def _preparation(model: Any) -> list[str]:
    """Returns the names of the first convolution (the patch embedding) and of its inputs' nodes.

    Given only the ends, NNCF would follow every path between them: one leads from the input's shape
    through the encoder, and two through each residual connection, 2^24 in twelve blocks.
    """
    first = next(node for node in model.get_ordered_ops() if node.get_type_name() == "Convolution")
    names: dict[str, None] = {first.get_friendly_name(): None}
    waiting = [first.input_value(0).get_node()]
    while waiting:
        node = waiting.pop()
        if node.get_friendly_name() not in names and node.get_type_name() != "Constant":
            names[node.get_friendly_name()] = None
            waiting += [value.get_node() for value in node.input_values()]
    return list(names)


FORMAT = Format(
    model="model.xml",
    further=("model.bin",),
    writes={"torch": "torch", "onnx": "export", "onnxscript": "export", "openvino": "openvino"},
    reads={"openvino": "openvino"},
    write=onnx.write,
    finish=_finish,
    precisions=("float32", "float16", "int8"),
    quantises={"nncf": "nncf"},
    takes_calibration=True,
    program="""\
import numpy as np
import openvino

# Without this setting, processors that have bfloat16 compute in it.
settings = {{"INFERENCE_PRECISION_HINT": "f32"}}
model = openvino.Core().compile_model("model.xml", "CPU", settings)
{images}
outputs = model(images)[0]
""",
)
