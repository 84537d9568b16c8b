"""Writes a SavedModel, which TensorFlow Serving reads. The module needs tensorflow."""

from pathlib import Path
from typing import Any

from keras_vit.exporting.plan import INPUT, ExportPlan, Format


def write(graph: Any, plan: ExportPlan, folder: Path) -> None:
    """Writes the folder `model`, whose endpoints `serve` and `serving_default` are the graph."""
    import keras
    import tensorflow as tf

    archive = keras.export.ExportArchive()
    archive.track(graph.model)
    spec = tf.TensorSpec(plan.input_shape, plan.input_dtype, INPUT)
    archive.add_endpoint("serve", graph, input_signature=[spec])
    archive.write_out(str(folder / "model"), verbose=False)


FORMAT = Format(
    model="model",
    writes={"tensorflow": "tensorflow"},
    reads={"tensorflow": "tensorflow"},
    backend="tensorflow",
    write=write,
    program="""\
import numpy as np
import tensorflow as tf

# Without this setting, GPUs round the factors of products to 10 bits.
tf.config.experimental.enable_tensor_float_32_execution(False)
model = tf.saved_model.load("model")
{images}
outputs = model.serve(tf.constant(images)).numpy()
""",
)
