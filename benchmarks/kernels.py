"""The gain of each fast form of `keras_vit.kernels` over its reference, on this backend.

    KERAS_BACKEND=torch python -m benchmarks.kernels benchmarks/results/kernels.json
    python -m benchmarks.kernels --table benchmarks/results/kernels.json

Each form runs in turns with its reference in one process: forward alone, and forward with the
gradient. A figure is the share of the reference's processor time that the form saves, from the
least of each one's turns; and the share of temporary memory, where XLA tells it. Rows `call_part`,
`call_then_gelu` and `tensor` are whole forward passes of ViT-S/16 at batch 1 and 8, with and
without that form.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_vit
from keras_vit import kernels
from keras_vit.kernels import reference

_TURNS = 15
_BATCH, _TOKENS, _HIDDEN, _HEADS = 8, 197, 384, 6


def operations() -> dict[str, tuple[str, Callable[[Any], Callable[..., Any]], list[Any]]]:
    """Name -> (operation, function from a module of forms to a function of arrays, the arrays)."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return keras.ops.convert_to_tensor(rng.standard_normal(shape, dtype="float32"))

    tokens, wide = normal(_BATCH, _TOKENS, _HIDDEN), normal(_BATCH, _TOKENS, 4 * _HIDDEN)
    heads = [normal(_BATCH, _TOKENS, _HEADS, _HIDDEN // _HEADS) for _ in range(3)]
    scale, shift = normal(_HIDDEN), normal(_HIDDEN)
    kernel, bias = normal(_HIDDEN, _HEADS, 64), normal(_HEADS, 64)
    return {
        "layer_norm": (
            "layer_norm",
            lambda forms: lambda x, g, b: forms.layer_norm(x, g, b, 1e-6),
            [tokens, scale, shift],
        ),
        "attention": ("attention", lambda forms: forms.attention, heads),
        "gelu, tanh": ("gelu", lambda forms: lambda x: forms.gelu(x, True), [wide]),
        "gelu, exact": ("gelu", lambda forms: lambda x: forms.gelu(x, False), [wide]),
        "linear": ("linear", lambda forms: forms.linear, [tokens, kernel, bias]),
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

    run = jax.jit(function)
    grad = jax.jit(jax.grad(lambda *at: function(*at).sum(), tuple(range(len(inputs)))))
    return {
        "forward": lambda: jax.block_until_ready(run(*inputs)),
        "with gradient": lambda: jax.block_until_ready(grad(*inputs)),
    }


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


def measure(turns: int) -> list[dict[str, Any]]:
    """Returns a row per operation and step, and one per whole model."""
    rows = []
    for name, (operation, make, inputs) in operations().items():
        if getattr(kernels, operation) is getattr(reference, operation):
            continue  # this backend has no fast form
        fast, plain = steps(make(kernels), inputs), steps(make(reference), inputs)
        for step in fast:
            rows.append(_row(f"{name}, {step}", *least(fast[step], plain[step], turns)))
    if keras.backend.backend() == "torch":  # the other backends have no fast form of these
        others = {
            "call_part": reference.call_part,
            "call_then_gelu": _gelu_of_call,
            "tensor": reference.tensor,
        }
        rows += [
            _row(f"{form}, S/16, batch {batch}", *_whole_model(form, other, batch, turns))
            for form, other in others.items()
            for batch in (1, 8)
        ]
    return rows


def _gelu_of_call(layer: Any, part: Any, x: Any, approximate: bool) -> Any:
    """`call_then_gelu` from the fast forms of its two steps."""
    return kernels.gelu(kernels.call_part(layer, part, x), approximate)


def _whole_model(form: str, other: Any, batch: int, turns: int) -> tuple[float, float]:
    """Processor times of a forward pass of ViT-S/16 with the fast form and with the other."""
    model = keras_vit.vit_s16()
    images = keras.ops.zeros((batch, 224, 224, 3))
    fast = getattr(kernels, form)

    def forward_with(chosen: Any) -> Callable[[], None]:
        def function(images: Any) -> Any:
            setattr(kernels, form, chosen)
            try:
                return model(images, training=False)
            finally:
                setattr(kernels, form, fast)

        return steps(function, [images])["forward"]

    return least(forward_with(fast), forward_with(other), turns)


def _row(name: str, fast: float, plain: float) -> dict[str, Any]:
    return {
        "backend": keras.backend.backend(),
        "form": name,
        "milliseconds": round(fast * 1e3, 3),
        "reference": round(plain * 1e3, 3),
        "saved": round(1 - fast / plain, 3),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the rows as Markdown."""
    lines = ["| backend | form | ms | reference, ms | saved |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['backend']} | {row['form']} | {row['milliseconds']:.2f} | "
        f"{row['reference']:.2f} | {row['saved']:.0%} |"
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
