"""Programs for accelerators, read on a machine that has none: python -m benchmarks.lowered.

JAX lowers the forward pass and the training step of Keras for CUDA and for TPUs, from abstract
weights and images; torch records both on its meta device (FX), and TensorFlow writes its graph for
"/GPU:0", of two blocks. Its HLO for CUDA cannot be read here: `experimental_get_compiler_ir` of
TensorFlow 2.21 asks for the device's driver ("No JIT device registered for CUDA"), and for TPUs it
fails too. No weight is stored on JAX and torch, and nothing is computed. `cuda+cudnn` is the
program that a GPU with cuDNN would write for itself; the GPU is pretended.

The table says what would be slow: products in float32 where bfloat16 was meant, forms for CPUs,
casts and transposes, calls of the host, and what is kept for the gradient.
"""

import argparse
import collections
import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras

from benchmarks.sizes import size_named

MODELS = ("S/16", "B/16", "DINOv2-B/14", "L/16")
BATCHES = (1, 256)
PLATFORMS = {"jax": ("cuda", "cuda+cudnn", "tpu"), "torch": ("meta",), "tensorflow": ("gpu",)}
_ON_HOST = re.compile("callback|PyFunc|py_function")


@dataclasses.dataclass
class Program:
    """What a program consists of; numbers `per block` are means over the blocks of the encoder.

    Args:
        products: matrix products and convolutions.
        float32_products: those with float32 inputs. The head is meant to be one, with its gradient.
        casts, transposes: per block.
        attention: the operation or custom call that computes attention, and how often per block.
        cpu_forms: functions of `keras_vit` for CPUs, or with a gradient written by hand.
        host_calls: calls of Python.
        donated: arguments whose memory the results may take.
        constants: bytes of constants that are not one repeated number.
        saved, saved_float32: bytes per image that depend on the images and that the forward pass
            leaves for the gradient, as the program is written; a compiler may keep less. None for
            a forward pass.
    """

    products: int = 0
    float32_products: int = 0
    casts: float = 0
    transposes: float = 0
    attention: str = ""
    cpu_forms: tuple[str, ...] = ()
    host_calls: int = 0
    donated: int = 0
    constants: int = 0
    saved: float | None = None
    saved_float32: float | None = None


def programs(
    backend: str, fields: dict[str, Any], batch: int, policy: str = "mixed_bfloat16"
) -> dict[tuple[str, str], Program]:
    """Returns the programs of a model on a backend as `{(task, platform): program}`.

    Args:
        backend: the backend of Keras in this process.
        fields: fields of `ViTConfig`.
        batch: images.
        policy: the dtype policy of the model.
    """
    return {"jax": _of_jax, "torch": _of_torch, "tensorflow": _of_tensorflow}[backend](
        fields, batch, policy
    )


def _model(fields: dict[str, Any], policy: str) -> Any:
    from keras_vit import VisionTransformer

    model = VisionTransformer(**fields, dtype=policy)
    model.compile(keras.optimizers.AdamW(1e-3), _loss, jit_compile=keras.backend.backend() == "jax")
    model.optimizer.build(model.trainable_variables)
    return model


def _loss(labels: Any, logits: Any) -> Any:
    loss = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if keras.backend.backend() != "jax":
        return loss
    import jax

    return jax.lax.optimization_barrier(loss)  # marks the end of the forward pass, see `_read`


def _of_jax(fields: dict[str, Any], batch: int, policy: str) -> dict[tuple[str, str], Program]:
    import jax

    models: list[Any] = []
    jax.eval_shape(lambda: models.append(_model(fields, policy)))  # weights are traced, not drawn
    model, depth = models[0], fields["num_layers"]

    def abstract(variables: Any) -> Any:
        return [jax.ShapeDtypeStruct(tuple(v.shape), v.dtype) for v in variables]

    sides = (fields["image_size"], fields["image_size"])
    images = jax.ShapeDtypeStruct((batch, *sides, 3), "float32")
    labels = jax.ShapeDtypeStruct((batch,), "int32")
    weights = abstract(model.trainable_variables), abstract(model.non_trainable_variables)
    further = abstract(model.optimizer.variables), abstract(model.metrics_variables)

    def forward(trainable: Any, others: Any, images: Any) -> Any:
        return model.stateless_call(trainable, others, images, training=False)[0]

    tasks = {
        "forward": (jax.jit(forward), (*weights, images)),
        "train": (
            jax.jit(model.train_step, donate_argnums=0),
            ((*weights, *further), (images, labels)),
        ),
    }
    found = {}
    for platform in PLATFORMS["jax"]:
        for task, (function, arguments) in tasks.items():
            jax.clear_caches()
            with _cudnn() if platform.endswith("cudnn") else contextlib.nullcontext():
                traced = function.trace(*arguments)
                lowered = traced.lower(lowering_platforms=(platform.partition("+")[0],))
            found[task, platform] = _read(lowered, batch, depth)
    return found


@contextlib.contextmanager
def _cudnn() -> Iterator[None]:
    """Lets JAX and keras_vit believe in a GPU with cuDNN 9.10 and its attention."""
    of_jax = "jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version"
    with (
        mock.patch(of_jax, return_value=91000),
        mock.patch("keras_vit.kernels.jax._has_ampere", return_value=True),
    ):
        yield


def _read(lowered: Any, batch: int, depth: int) -> Program:
    """Reads a program of JAX from its StableHLO."""
    module = lowered.compiler_ir("stablehlo")
    functions = {op.attributes["sym_name"].value: op for op in module.body.operations}
    main = functions["main"].regions[0].blocks[0]
    counts: collections.Counter[Any] = collections.Counter()
    program = Program()

    def count(block: Any) -> None:
        for each in block.operations:
            op = each.operation
            name = op.name
            counts[name] += 1
            if name in ("stablehlo.dot_general", "stablehlo.convolution"):
                counts["float32"] += all(_bits(x.type)[0] == "f32" for x in op.operands)
            elif name == "stablehlo.custom_call":
                counts["custom", op.attributes["call_target_name"].value] += 1
            elif name == "stablehlo.constant" and not op.attributes["value"].is_splat:
                program.constants += _size(op.results[0].type)
            elif name == "func.call":
                count(functions[op.attributes["callee"].value].regions[0].blocks[0])
            for region in op.regions:
                for inner in region.blocks:
                    count(inner)

    count(main)
    custom = {key[1]: n for key, n in counts.items() if isinstance(key, tuple)}
    kernels = {name: n for name, n in custom.items() if "fmha" in name or "tpu_custom" in name}
    text = lowered.as_text(debug_info=True)
    names = set(re.findall(r'loc\("(?:[^"]*/)?(\w+)"\(#loc', text))
    program.products = counts["stablehlo.dot_general"] + counts["stablehlo.convolution"]
    program.float32_products = counts["float32"]
    program.casts = counts["stablehlo.convert"] / depth
    program.transposes = counts["stablehlo.transpose"] / depth
    program.attention = _counted(kernels or {"products": depth}, depth)
    program.cpu_forms = tuple(sorted(n for n in names if n.endswith("_on_cpus")))
    if loops := counts["stablehlo.while"]:
        program.cpu_forms += (f"{loops} loops",)
    program.host_calls = sum(n for name, n in custom.items() if _ON_HOST.search(name))
    program.donated = len(re.findall(r"tf\.aliasing_output|jax\.buffer_donor", text))
    saved = _saved(main)
    if saved is not None:
        program.saved, program.saved_float32 = (size / batch for size in saved)
    return program


def _saved(main: Any) -> tuple[int, int] | None:
    """Returns the bytes that pass the first barrier, all and those in float32; None without it."""
    ops = [each.operation for each in main.operations]
    barrier = next((k for k, op in enumerate(ops) if "optimization_barrier" in op.name), None)
    if barrier is None:
        return None
    of_images = {hash(main.arguments[-2])}  # the labels are last
    for op in ops[:barrier]:
        if not of_images.isdisjoint(_reads(op)):
            of_images.update(map(hash, op.results))
    late = {value for op in ops[barrier:] for value in _reads(op)} & of_images
    kept = [r.type for op in ops[:barrier] for r in op.results if hash(r) in late]
    return sum(map(_size, kept)), sum(_size(t) for t in kept if _bits(t)[0] == "f32")


def _reads(op: Any) -> Iterator[int]:
    yield from (hash(operand) for operand in op.operands)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _reads(inner.operation)


def _bits(kind: Any) -> tuple[str, int]:
    element = str(getattr(kind, "element_type", kind))
    return element, int(re.sub(r"\D", "", element.partition("E")[0]) or 8)


def _size(kind: Any) -> int:
    count = 1
    for side in getattr(kind, "shape", ()):
        count *= side
    return count * max(_bits(kind)[1] // 8, 1)


def _counted(names: dict[str, int], depth: int) -> str:
    return ", ".join(f"{name} x {n / depth:g}" for name, n in names.items())


def _of_torch(fields: dict[str, Any], batch: int, policy: str) -> dict[tuple[str, str], Program]:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.multiprocessing.reductions import StorageWeakRef

    side, depth = fields["image_size"], fields["num_layers"]
    with keras.device("meta"):
        model = _model(fields, policy)
    weights = [v.value for v in model.trainable_variables]
    images = torch.empty(batch, side, side, 3, device="meta")
    labels = torch.empty(batch, dtype=torch.long, device="meta")
    saved: dict[Any, Any] = {}
    gradients: list[Any] = []

    def keep(x: Any) -> Any:
        if x.ndim and x.shape[0] in (batch, batch * _tokens(fields)):
            saved[StorageWeakRef(x.untyped_storage())] = x
        return x

    def forward(images: Any) -> Any:
        return model(images, training=False)

    def train(images: Any, labels: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            logits = model(images, training=True)
            loss = torch.nn.functional.cross_entropy(logits, labels)
        gradients.extend(_gradients(loss))
        return torch.autograd.grad(loss, weights)

    found = {}
    for function, arguments in ((forward, (images,)), (train, (images, labels))):
        with _cuda_on_meta(), torch.set_grad_enabled(function is train):
            nodes = make_fx(function)(*arguments).graph.nodes
        program = found[function.__name__, "meta"] = Program()
        counts: collections.Counter[str] = collections.Counter()
        for node in nodes:
            name = str(node.target).removeprefix("aten.").partition(".")[0]
            counts[name] += node.op == "call_function"
            if name in ("addmm", "mm", "bmm", "convolution", "convolution_backward"):
                program.products += 1
                kinds = {a.meta["val"].dtype for a in node.args if hasattr(a, "meta")}
                program.float32_products += kinds == {torch.float32}
        program.casts = counts["_to_copy"] / depth
        program.transposes = counts["clone"] / depth  # the others are views
        kernels = {name: count for name, count in counts.items() if "attention" in name}
        program.attention = _counted(kernels, depth)
        program.cpu_forms = tuple(n for n in counts if "mkldnn" in n or "keras_vit" in n)
    sizes = [(x.nbytes / batch, x.dtype == torch.float32) for x in saved.values()]
    program.saved = sum(size for size, _ in sizes)
    program.saved_float32 = sum(size for size, is_float32 in sizes if is_float32)
    program.cpu_forms += tuple(sorted({n for n in gradients if n.startswith("_")}))
    return found


def _tokens(fields: dict[str, Any]) -> int:
    return (fields["image_size"] // fields["patch_size"]) ** 2 + 1


@contextlib.contextmanager
def _cuda_on_meta() -> Iterator[None]:
    """Lets Keras compute on the meta device, with the attention that torch chooses on CUDA."""
    import torch

    def flash(query: Any, key: Any, value: Any, attn_mask: None = None) -> Any:
        return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]

    with (
        # Keras replaces tensors on the device "meta", by its name, by others without a gradient.
        mock.patch("keras.src.backend.torch.core.get_device", lambda: torch.device("meta")),
        mock.patch("torch.nn.functional.scaled_dot_product_attention", flash),
    ):
        yield


def _gradients(loss: Any) -> list[str]:
    """The names of the functions by which torch differentiates `loss`."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        function = waiting.pop()
        if function is not None and function not in seen:
            seen.add(function)
            waiting += [following for following, _ in function.next_functions]
    return [type(function).__name__ for function in seen]


def _of_tensorflow(
    fields: dict[str, Any], batch: int, policy: str
) -> dict[tuple[str, str], Program]:
    import tensorflow as tf

    model, depth = _model(fields, policy), fields["num_layers"]
    side = fields["image_size"]
    specs = tf.TensorSpec((batch, side, side, 3)), tf.TensorSpec((batch,), tf.int32)
    tasks = {
        "forward": (lambda images, labels: model(images, training=False)),
        "train": (lambda images, labels: model.train_step((images, labels))),
    }
    found = {}
    platform = PLATFORMS["tensorflow"][0]
    for task, function in tasks.items():

        @tf.function
        def placed(images: Any, labels: Any, function: Any = function) -> Any:
            with tf.device(f"/{platform}:0"):  # the tracing needs no such device
                return function(images, labels)

        definition = placed.get_concrete_function(*specs).graph.as_graph_def()
        nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
        counts = collections.Counter(node.op for node in nodes)
        products = [n for n in nodes if re.search("MatMul|Einsum|Conv2D", n.op)]
        scopes = {part for n in nodes for part in n.name.split("/") if part.endswith("_on_cpus")}
        found[task, platform] = Program(
            products=len(products),
            float32_products=sum(n.attr["T"].type == tf.float32.as_datatype_enum for n in products),
            casts=counts["Cast"] / depth,
            transposes=counts["Transpose"] / depth,
            attention=_counted({"Softmax": counts["Softmax"]}, depth),
            cpu_forms=tuple(sorted(scopes)),
            host_calls=sum(n for op, n in counts.items() if _ON_HOST.search(op)),
            constants=sum(len(n.attr["value"].tensor.tensor_content) for n in nodes),
        )
    return found


def main() -> None:
    """Prints a table of the programs of this process's backend."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    arguments = parser.parse_args()
    backend, rows = keras.backend.backend(), []
    for name, batch in itertools.product(arguments.models, arguments.batches):
        fields = size_named(name).fields()
        if backend == "tensorflow":  # which keeps the weights in memory
            fields["num_layers"] = 2
        for (task, platform), program in programs(backend, fields, batch).items():
            row = {"backend": backend, "platform": platform, "model": name, "batch": batch}
            rows.append({**row, "task": task, **dataclasses.asdict(program)})
    _show(rows)


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(_text, row.values()))
    Console(width=220).print(table)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value / 1e6:.1f} MB" if value > 1e4 else f"{value:.1f}"
    return ", ".join(value) if isinstance(value, tuple) else str("" if value is None else value)


if __name__ == "__main__":
    main()
