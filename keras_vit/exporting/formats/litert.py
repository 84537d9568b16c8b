"""Writes model.tflite, the flatbuffer that LiteRT runs on phones. The module needs tensorflow."""

from pathlib import Path
from typing import Any

from keras_vit.exporting.formats import saved_model
from keras_vit.exporting.plan import ExportPlan, Format


def _write(graph: Any, plan: ExportPlan, folder: Path) -> None:
    import tensorflow as tf

    graph.refuse_quantised("int8", "LiteRT")  # it has no product of Keras's rounded activations
    saved = folder.parent / "saved"
    saved.mkdir()
    saved_model.write(graph, plan, saved)
    # Given only a function, the converter leaves weights as variables that are not initialised.
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(saved / "model"), signature_keys=["serve"]
    )
    if plan.precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if plan.precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    (folder / "model.tflite").write_bytes(converter.convert())


def _refusal(plan: ExportPlan) -> str | None:
    if plan.config.image_size is not None:
        return None
    return "LiteRT needs a fixed image size. Choose one, such as image_size=224, or another format."


FORMAT = Format(
    model="model.tflite",
    writes={"tensorflow": "tensorflow"},
    reads={"ai_edge_litert": "litert"},
    backend="tensorflow",
    write=_write,
    any_size=False,
    precisions=("float32", "float16", "int8"),
    refusal=_refusal,
    program="""\
from ai_edge_litert.interpreter import Interpreter
import numpy as np

model = Interpreter("model.tflite")
{images}
model.resize_tensor_input(0, images.shape)
model.allocate_tensors()
model.set_tensor(model.get_input_details()[0]["index"], images)
model.invoke()
outputs = model.get_tensor(model.get_output_details()[0]["index"])
""",
)
