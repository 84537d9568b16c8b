"""Converts ONNX files to fewer bits: int8 products of matrices, or float16."""

import logging
import types
import warnings
from pathlib import Path

import numpy as np

from keras_vit.exporting.plan import ExportPlan


def convert(path: Path, plan: ExportPlan, calibration: list[np.ndarray] | None) -> None:
    """Rewrites an ONNX file in the plan's precision; in int8, what prepares images stays float32.

    Args:
        path: the file.
        plan: the plan of the export.
        calibration: inputs of the graph, for int8 of activations with fixed ranges; None for
            ranges that each call measures.
    """
    if plan.precision == "int8":
        quantise(path, path, plan.input, calibration)
    elif plan.precision == "float16":
        _halve(path)


def quantise(
    path: Path, target: Path, input: str, calibration: list[np.ndarray] | None = None
) -> None:
    """Writes the int8 form of an ONNX file: weights by channel, as QDQ where it is calibrated."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    folded = path.with_name("folded.onnx")
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # it advises what is done here already
    try:
        # Unfolded, most weights are no initializers of a MatMul, and silently stay as they are.
        quant_pre_process(str(path), str(folded), skip_symbolic_shape=True)
        kinds = ["MatMul", "Gemm"]
        if calibration is None:
            quantization.quantize_dynamic(
                folded, target, op_types_to_quantize=kinds, per_channel=True
            )
        else:
            batches = ({input: image[None]} for image in calibration)
            quantization.quantize_static(
                folded,
                target,
                types.SimpleNamespace(get_next=lambda: next(batches, None)),
                op_types_to_quantize=kinds,
                per_channel=True,
                extra_options={"MatMulConstBOnly": True},
            )
    finally:
        logging.getLogger().setLevel(level)
        folded.unlink(missing_ok=True)


def _halve(path: Path) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that float16 rounds to zero
        half = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    onnx.save(half, path)
