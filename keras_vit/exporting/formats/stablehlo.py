"""Writes model.stablehlo, a program of `jax.export` that holds the weights.

The module needs jax, and flatbuffers, by which `jax.export` writes and reads.
"""

from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.exporting.plan import ExportPlan, Format, Run


def _write(graph: Any, plan: ExportPlan, folder: Path) -> None:
    import jax
    from jax import export

    axes = plan.shape("batch", "height", "width")
    steps = plan.shape(1, *(plan.config.stride if plan.prepares != "resize" else (1, 1)))
    words, bounds = [], []
    for axis, size, unit in zip(axes, plan.input_shape, steps, strict=True):
        words.append(str(size or (axis if unit == 1 else f"{unit}*{axis}")))
        bounds += [] if size is not None else [f"{axis} >= 1"]
    shape = export.symbolic_shape(", ".join(words), constraints=bounds)
    program = export.export(jax.jit(graph), platforms=("cpu", "cuda", "tpu"))(
        jax.ShapeDtypeStruct(shape, plan.input_dtype)
    )
    (folder / "model.stablehlo").write_bytes(program.serialize())


def _open(folder: Path) -> Run:
    import jax

    program = jax.export.deserialize(bytearray((folder / "model.stablehlo").read_bytes()))
    return lambda images: np.asarray(program.call(images))


FORMAT = Format(
    model="model.stablehlo",
    writes={"jax": "jax", "flatbuffers": "jax"},
    reads={"jax": "jax", "flatbuffers": "jax"},
    backend="jax",
    write=_write,
    open=_open,
    program="""\
from jax import export
import numpy as np

with open("model.stablehlo", "rb") as file:
    model = export.deserialize(bytearray(file.read()))
{images}
outputs = np.asarray(model.call(images))
""",
)
