"""The gain of each fast form of `keras_vit.kernels` over its reference, on this backend.

    KERAS_BACKEND=torch python -m benchmarks.kernels FILE
    python -m benchmarks.kernels --table FILE

Each form runs in turns with its reference in one process: forward alone, and forward with the
gradient. A figure is the share of the reference's processor time that the form saves, from the
least of each one's turns. On JAX, XLA also states the temporary memory of both programs; on torch
the figure is how far resident memory rises in a step. Rows that name a model are whole passes of it
with the form and without: what `call_block` and `tensor` save on torch is not in the operation, and
XLA fuses an operation with its neighbours.
"""

import argparse
import contextlib
import ctypes
import functools
import gc
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil

import keras_vit
from keras_vit import kernels
from keras_vit.kernels import reference
from keras_vit.models import graph

_TURNS = 15
_BATCH, _TOKENS, _HIDDEN, _HEADS = 8, 197, 384, 6
_MANY_TOKENS = 1601  # 640 pixels; beyond `reference.MOST_SCORES`


def operations() -> dict[str, tuple[str, Callable[[Any], Callable[..., Any]], list[Any]]]:
    """Name -> (operation, function from a module of forms to a function of arrays, the arrays)."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return keras.ops.convert_to_tensor(rng.standard_normal(shape, dtype="float32"))

    tokens, wide = normal(_BATCH, _TOKENS, _HIDDEN), normal(_BATCH, _TOKENS, 4 * _HIDDEN)
    heads = [normal(_BATCH, _TOKENS, _HEADS, _HIDDEN // _HEADS) for _ in range(3)]
    many = [normal(1, _MANY_TOKENS, _HEADS, _HIDDEN // _HEADS) for _ in range(3)]
    scale, shift = normal(_HIDDEN), normal(_HIDDEN)
    kernel, bias = normal(_HIDDEN, _HEADS, 64), normal(_HEADS, 64)
    return {
        "layer_norm": (
            "layer_norm",
            lambda forms: lambda x, g, b: forms.layer_norm(x, g, b, 1e-6),
            [tokens, scale, shift],
        ),
        "attention": ("attention", lambda forms: forms.attention, heads),
        f"attention, {_MANY_TOKENS:,} tokens": ("attention", lambda forms: forms.attention, many),
        "gelu, tanh": ("gelu", lambda forms: lambda x: forms.gelu(x, True), [wide]),
        "gelu, exact": ("gelu", lambda forms: lambda x: forms.gelu(x, False), [wide]),
        "linear": ("linear", lambda forms: forms.linear, [tokens, kernel, bias]),
        f"rotate, {_MANY_TOKENS:,} tokens": (
            "rotate",
            lambda forms: lambda x, table: forms.rotate(x, table, False),
            [many[0], normal(2, _MANY_TOKENS, 1, _HIDDEN // _HEADS)],
        ),
        "patches of 16": (
            "patches",
            lambda forms: forms.patches,
            [normal(_BATCH, 224, 224, 3), normal(16, 16, 3, _HIDDEN)],
        ),
        "patches of 32, one image": (
            "patches",
            lambda forms: forms.patches,
            [normal(1, 224, 224, 3), normal(32, 32, 3, 768)],
        ),
    }


def steps(function: Callable[..., Any], inputs: list[Any]) -> dict[str, Callable[[], Any]]:
    """A forward pass, and a forward pass with gradients of its sum; both wait for the result."""
    if keras.backend.backend() == "torch":
        import torch

        def forward() -> None:
            with torch.no_grad():
                function(*inputs)

        def both() -> None:
            at = [x.detach().requires_grad_() for x in inputs]
            function(*at).sum().backward()

        return {"forward": forward, "with gradient": both}
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        @tf.function
        def gradients(*at: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(at)
                y = tf.reduce_sum(function(*at))
            return tape.gradient(y, at)

        compiled = tf.function(function)
        return {
            "forward": lambda: compiled(*inputs).numpy(),
            "with gradient": lambda: [x.numpy() for x in gradients(*inputs)],
        }
    import jax

    def compute_sum(*at: Any) -> Any:
        return function(*at).sum()

    slopes = jax.grad(compute_sum, tuple(range(len(inputs))))
    return {"forward": _Program(function, inputs), "with gradient": _Program(slopes, inputs)}


class _Program:
    """A program of XLA with its inputs, compiled when it is first used."""

    def __init__(self, function: Callable[..., Any], inputs: list[Any]) -> None:
        self.function, self.inputs = function, inputs

    @functools.cached_property
    def program(self) -> Any:
        import jax

        return jax.jit(self.function).lower(*self.inputs).compile()

    @property
    def megabytes(self) -> float:
        return self.program.memory_analysis().temp_size_in_bytes / 1e6

    def __call__(self) -> None:
        import jax

        jax.block_until_ready(self.program(*self.inputs))


def least(step: Callable[[], Any], other: Callable[[], Any], turns: int) -> tuple[float, float]:
    """The least processor time of each step in seconds, in alternating turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns + 2):
        for function, spent in zip((step, other), times, strict=True):
            begun = time.process_time()
            function()
            if turn >= 2:  # the first turns compile
                spent.append(time.process_time() - begun)
    return min(times[0]), min(times[1])


def _rise(step: Callable[[], Any]) -> float:
    """Megabytes by which resident memory rises during a step, sampled each millisecond."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what earlier steps freed
    process, done, seen = psutil.Process(), threading.Event(), [0]
    before = process.memory_info().rss

    def sample() -> None:
        while not done.wait(0.001):
            seen.append(process.memory_info().rss - before)

    thread = threading.Thread(target=sample)
    thread.start()
    step()
    done.set()
    thread.join()
    return max(seen) / 1e6


def measure(turns: int) -> list[dict[str, Any]]:
    """Returns a row per operation and step, and one per whole model."""
    rows = []
    single = {} if keras.backend.backend() == "openvino" else operations()
    for name, (operation, make, inputs) in single.items():
        if getattr(kernels, operation) is getattr(reference, operation):
            continue  # this backend has no fast form
        fast, plain = steps(make(kernels), inputs), steps(make(reference), inputs)
        rows += [_row(f"{name}, {step}", fast[step], plain[step], turns) for step in fast]
    for form, other, step, name, batch, fields in _WHOLE_MODELS.get(keras.backend.backend(), ()):
        model = _BUILDERS[name](**fields)
        blocks, (size, _) = model.config.num_layers, model.config.image_size
        label = f"{form}, {name} of {blocks} blocks, {size} pixels, batch {batch}, {step}"
        rows.append(_row(label, *_whole_model(form, other, step, model, batch), turns))
    return rows


_MANY = {"image_size": 1024, "num_layers": 2}
_BUILDERS = {"S/16": keras_vit.vit_s16, "B/16": keras_vit.vit_b16}
_WHOLE_MODELS: dict[str, list[tuple[str, Any, str, str, int, dict[str, Any]]]] = {
    "torch": [
        (form, other, "forward", "S/16", batch, {})
        for form, other in (
            ("call_block", lambda block, z, **arguments: block(z, **arguments)),
            ("tensor", reference.tensor),
        )
        for batch in (1, 8)
    ],
    "jax": [
        ("layer_norm", reference.layer_norm, "forward", "S/16", 8, {}),
        ("layer_norm", reference.layer_norm, "gradient of the weights", "S/16", 8, {}),
        ("attention", reference.attention, "forward", "S/16", 8, {}),
        ("attention", reference.attention, "gradient of the weights", "S/16", 8, {}),
        ("gelu", reference.gelu, "forward", "B/16", 1, _MANY),
    ],
    "openvino": [
        (form, getattr(reference, form), "forward", "S/16", batch, {})
        for form in ("layer_norm", "attention", "linear")
        for batch in (1, 8)
    ],
}
"""Backend -> (fast form, what takes its place, step, model, batch size, fields of the model)."""


def _whole_model(form: str, other: Any, step: str, model: Any, batch: int) -> tuple[Any, Any]:
    """Passes of a model with the fast form and with the other."""
    size, _ = model.config.image_size
    images = np.zeros((batch, size, size, 3), "float32")
    weights = [variable.value for variable in model.trainable_variables]
    fixed = [variable.value for variable in model.non_trainable_variables]
    place = graph if form == "call_block" else kernels
    fast = getattr(place, form)

    def with_form(chosen: Any) -> Callable[[], Any]:
        def forward(images: Any) -> Any:
            setattr(place, form, chosen)
            try:
                return model(images, training=False)
            finally:
                setattr(place, form, fast)

        def loss(*weights: Any) -> Any:
            setattr(place, form, chosen)
            try:
                return model.stateless_call(weights, fixed, images, training=False)[0]
            finally:
                setattr(place, form, fast)

        if keras.backend.backend() == "openvino":
            own = type(model).from_config(model.get_config())  # compiled once, with this form
            setattr(place, form, chosen)
            try:
                own.predict_on_batch(images)
            finally:
                setattr(place, form, fast)
            return lambda: own.predict_on_batch(images)
        if step == "forward":
            return steps(forward, [keras.ops.convert_to_tensor(images)])["forward"]
        return steps(loss, weights)["with gradient"]

    return with_form(fast), with_form(other)


def _row(
    name: str, fast: Callable[[], Any], plain: Callable[[], Any], turns: int
) -> dict[str, Any]:
    """Measures a form beside its reference."""
    seconds = least(fast, plain, turns)
    row = {
        "backend": keras.backend.backend(),
        "form": name,
        "milliseconds": round(seconds[0] * 1e3, 3),
        "reference": round(seconds[1] * 1e3, 3),
        "saved": round(1 - seconds[0] / seconds[1], 3),
    }
    for key, step in (("megabytes", fast), ("reference_megabytes", plain)):
        if isinstance(step, _Program):
            row[key] = round(step.megabytes, 1)
        elif keras.backend.backend() == "torch":  # TensorFlow's allocator keeps a pool
            row[key] = round(_rise(step), 1)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the rows as Markdown."""
    lines = [
        "| backend | form | ms | reference, ms | saved | MB | reference, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['backend']} | {row['form']} | {row['milliseconds']:.2f} | "
        f"{row['reference']:.2f} | {row['saved']:.0%} | {row.get('megabytes', '')} | "
        f"{row.get('reference_megabytes', '')} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measures; adds the rows to a file or prints them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("json", type=Path)
    parser.add_argument("--turns", type=int, default=_TURNS)
    parser.add_argument("--table", action="store_true", help="print what the file holds")
    arguments = parser.parse_args()
    rows = json.loads(arguments.json.read_text()) if arguments.json.exists() else []
    if not arguments.table:
        backend = keras.backend.backend()
        rows = [row for row in rows if row["backend"] != backend] + measure(arguments.turns)
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
