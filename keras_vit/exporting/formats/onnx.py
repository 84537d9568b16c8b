"""Writes model.onnx, opset 20, with `torch.onnx.export`; the module needs torch.

ONNX Runtime quantises the file to int8 matrix products, or converts it to float16.
"""

import contextlib
import json
import logging
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.exporting.formats.torch import recording, trace_arguments
from keras_vit.exporting.plan import INPUT, ExportPlan, Format

OPSET = 20
"""The first with Gelu; OpenVINO reads it. ONNX Runtime is not faster with 23, which has Attention.
"""


def write(graph: Any, plan: ExportPlan, folder: Path) -> None:
    """Writes `model.onnx`, with labels, protocol and provenance as its metadata.

    Raises:
        ExportError: the model is quantised to int4.
    """
    import torch
    from onnxscript import optimizer

    # Keras packs two weights of int4 into a byte; the operations that unpack them mix types.
    graph.refuse_quantised("int4", "ONNX")
    module, inputs, is_open = trace_arguments(graph, plan)
    with recording():
        program = torch.onnx.export(
            module,
            inputs,
            dynamo=True,
            dynamic_shapes=is_open,
            input_names=[INPUT],
            output_names=[plan.outputs],
            opset_version=OPSET,
            optimize=False,
            verbose=False,
        )
    # The default limit, 8,192 values, would keep the Reshape of every larger kernel in the graph.
    optimizer.optimize(program.model, input_size_limit=sys.maxsize)
    metadata = program.model.metadata_props
    for key, value in graph.facts().items():
        metadata[f"keras_vit.{key}"] = json.dumps(value)
    for node in program.model.graph:  # where in whose files each operation was traced
        node.metadata_props.clear()
        node.doc_string = None
    program.save(folder / "model.onnx")


@contextlib.contextmanager
def errors_alone(name: str | None = None) -> Iterator[None]:
    """Hides a logger's messages below errors, without a change of its level."""

    def is_an_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logging.getLogger(name).addFilter(is_an_error)
    try:
        yield
    finally:
        logging.getLogger(name).removeFilter(is_an_error)


def _quantise(path: Path, calibration: list[np.ndarray] | None) -> None:
    """Quantises an ONNX file to int8: weights by channel, in QDQ form if it is calibrated."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    folded = path.with_name("folded.onnx")
    with errors_alone():  # it recommends the preprocessing that is done here
        # Without folding, most weights are not initializers of a MatMul, and silently stay float32.
        quant_pre_process(str(path), str(folded), skip_symbolic_shape=True)
        # Weights of 7 bits: a processor with only AVX2 adds two products of 8 bits in 16 bits,
        # where they overflow silently.
        options: dict[str, Any] = {
            "op_types_to_quantize": ["MatMul", "Gemm"],
            "per_channel": True,
            "reduce_range": True,
        }
        if calibration is None:
            quantization.quantize_dynamic(folded, path, **options)
        else:
            batches = ({INPUT: images} for images in calibration)
            quantization.quantize_static(
                folded,
                path,
                types.SimpleNamespace(get_next=lambda: next(batches, None)),
                extra_options={"MatMulConstBOnly": True},
                **options,
            )
    folded.unlink()


def _halve(path: Path) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with warnings.catch_warnings(action="ignore"):  # about values that float16 rounds to zero
        half = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    onnx.save(half, path)


def _finish(folder: Path, plan: ExportPlan, calibration: list[np.ndarray] | None) -> None:
    path = folder / "model.onnx"
    if plan.precision == "int8":  # what prepares images stays float32
        _quantise(path, calibration)
    elif plan.precision == "float16":
        _halve(path)


def _refusal(plan: ExportPlan) -> str | None:
    if plan.precision != "float16" or plan.prepares == "nothing":
        return None
    return "preprocessing needs more precision than float16; choose preprocessing=False."


FORMAT = Format(
    model="model.onnx",
    further=("model.onnx.data",),
    writes={"torch": "torch", "onnx": "export", "onnxscript": "export"},
    reads={"onnxruntime": "export"},
    write=write,
    finish=_finish,
    precisions=("float32", "float16", "int8"),
    takes_calibration=True,
    refusal=_refusal,
    program="""\
import numpy as np
import onnxruntime

model = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
{images}
outputs = model.run(None, {{"images": images}})[0]
""",
)
