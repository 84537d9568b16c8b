"""ONNX files of fewer bits: int8 products of matrices, and float16."""

import logging
import warnings
from pathlib import Path

from keras_vit.exporting.plan import ExportPlan


def convert(path: Path, plan: ExportPlan) -> None:
    """Rewrites an ONNX file in the plan's precision; int8 leaves what prepares images as it is."""
    if plan.precision == "int8":
        quantise(path, path)
    elif plan.precision == "float16":
        _halve(path)


def quantise(path: Path, target: Path) -> None:
    """Writes the int8 form of an ONNX file: weights by channel; calls measure the activations."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    folded = path.with_name("folded.onnx")
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # it advises what is done here already
    try:
        # Unfolded, most weights are no initializers of a MatMul, and silently stay as they are.
        quant_pre_process(str(path), str(folded), skip_symbolic_shape=True)
        quantization.quantize_dynamic(
            folded, target, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True
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
