"""ONNX files of fewer bits: int8 products of matrices, and float16."""

import logging
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.exporting.plan import ExportPlan


def convert(path: Path, plan: ExportPlan, calibration: list[np.ndarray] | None) -> None:
    """Rewrites an ONNX file in the plan's precision; what prepares images stays float32.

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
    from onnxruntime.transformers.onnx_model import OnnxModel

    model = onnx.load(path)
    names = {node.name for node in model.graph.node}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that float16 rounds to zero
        half = convert_float_to_float16(
            model, keep_io_types=True, node_block_list=_before_patches(model)
        )
    _join_float32(half, names)
    OnnxModel(half).topological_sort()
    onnx.save(half, path)


def _join_float32(model: Any, names: set[str]) -> None:
    """Lets nodes in float32 read each other: ONNX Runtime's converter sends all through float16.

    It puts a cast behind each such node and another one in front of the next. Pixels and the
    weights of the resize would be rounded to 11 bits on their way.

    Args:
        model: the converted model, which is changed.
        names: names of the nodes before the conversion; all other nodes are casts of it.
    """
    casts = {
        output: node.input[0]
        for node in model.graph.node
        if node.op_type == "Cast" and node.name not in names
        for output in node.output
    }
    for node in model.graph.node:
        for k, name in enumerate(node.input):
            if node.name in names and casts.get(name) in casts:
                node.input[k] = casts[casts[name]]
    while unread := _unread(model):
        for node in unread:
            model.graph.node.remove(node)


def _unread(model: Any) -> list[Any]:
    read = {name for node in model.graph.node for name in node.input}
    read |= {output.name for output in model.graph.output}
    return [node for node in model.graph.node if not read.intersection(node.output)]


def _before_patches(model: Any) -> list[str]:
    """Names of the nodes that the first convolution reads: pixels up to 4,000 need float32."""
    makers = {output: node for node in model.graph.node for output in node.output}
    first = next(node for node in model.graph.node if node.op_type == "Conv")
    nodes: dict[str, Any] = {}
    waiting = [first.input[0]]
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and node.name not in nodes:
            nodes[node.name] = node
            waiting += node.input
    return list(nodes)
