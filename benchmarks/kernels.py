"""The gain of each fast form of `keras_vit.kernels` over its reference, on this backend.

    KERAS_BACKEND=torch python -m benchmarks.kernels

Each form runs in turns with its reference in one process: forward alone, and forward with the
gradient. A figure is the share of the reference's processor time that the form saves, from the
least of each one's turns. On JAX, XLA also states the temporary memory of both programs. Rows that
name a model are whole passes of it with the form and without: what `call_block` and `tensor` save
on torch is not in the operation, and XLA fuses an operation with its neighbours.
"""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np

import keras_vit
from benchmarks import report
from keras_vit import kernels
from keras_vit.kernels import reference
from keras_vit.models import graph

BACKEND = keras.backend.backend()
_TURNS = 15
_BATCH, _TOKENS, _HIDDEN, _HEADS = 8, 197, 384, 6
_MANY_TOKENS = 1601  # 640 pixels; beyond `reference.MOST_SCORES`


Operation = tuple[str, Callable[[Any], Callable[..., Any]], list[Any]]


def operations() -> dict[str, Operation]:
    """Name -> (operation, function from a module of forms to a function of arrays, the arrays)."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return keras.ops.convert_to_tensor(rng.standard_normal(shape, dtype="float32"))

    def plain(operation: str, *arrays: Any) -> Operation:
        return operation, lambda forms: getattr(forms, operation), list(arrays)

    def ending(operation: str, end: Any, *arrays: Any) -> Operation:
        return operation, lambda forms: lambda *a: getattr(forms, operation)(*a, end), list(arrays)

    side, long = _HIDDEN // _HEADS, f"{_MANY_TOKENS:,} tokens"
    tokens, wide = normal(_BATCH, _TOKENS, _HIDDEN), normal(_BATCH, _TOKENS, 4 * _HIDDEN)
    heads = [normal(_BATCH, _TOKENS, _HEADS, side) for _ in range(3)]
    many = [normal(1, _MANY_TOKENS, _HEADS, side) for _ in range(3)]
    kernel, bias = normal(_HIDDEN, _HEADS, side), normal(_HEADS, side)
    images = normal(_BATCH, 224, 224, 3)
    return {
        "layer_norm": ending("layer_norm", 1e-6, tokens, normal(_HIDDEN), normal(_HIDDEN)),
        "attention": plain("attention", *heads),
        f"attention, {long}": plain("attention", *many),
        "gelu, tanh": ending("gelu", True, wide),
        "gelu, exact": ending("gelu", False, wide),
        "linear": plain("linear", tokens, kernel, bias),
        f"rotate, {long}": ending("rotate", False, many[0], normal(2, _MANY_TOKENS, 1, side)),
        "patches of 16": plain("patches", images, normal(16, 16, 3, _HIDDEN)),
        "patches of 32, one image": plain("patches", images[:1], normal(32, 32, 3, 768)),
    }


def steps(function: Callable[..., Any], inputs: list[Any]) -> dict[str, Callable[[], Any]]:
    """A forward pass, and a forward pass with gradients of its sum; both wait for the result."""
    if BACKEND == "torch":
        import torch

        def forward() -> None:
            with torch.no_grad():
                function(*inputs)

        def both() -> None:
            at = [x.detach().requires_grad_() for x in inputs]
            function(*at).sum().backward()

        return {"forward": forward, "with gradient": both}
    if BACKEND == "tensorflow":
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

    def __call__(self) -> None:
        import jax

        jax.block_until_ready(self.program(*self.inputs))


def least(step: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float]:
    """The least processor time of each step in seconds, in alternating turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(_TURNS + 2):
        for function, spent in zip((step, other), times, strict=True):
            begun = time.process_time()
            function()
            if turn >= 2:  # the first turns compile
                spent.append(time.process_time() - begun)
    return min(times[0]), min(times[1])


def _row(name: str, fast: Callable[[], Any], plain: Callable[[], Any]) -> report.Row:
    """Measures a form beside its reference."""
    seconds, others = least(fast, plain)
    row = {"form": name, "ms": round(seconds * 1e3, 3), "reference, ms": round(others * 1e3, 3)}
    row["saved"] = round(1 - seconds / others, 3)
    for key, step in (("MB", fast), ("reference, MB", plain)):
        if isinstance(step, _Program):
            row[key] = round(step.program.memory_analysis().temp_size_in_bytes / 1e6, 1)
    return row


def measure() -> Iterator[report.Row]:
    """Yields a row per operation and step, and one per whole model."""
    single = {} if BACKEND == "openvino" else operations()
    for name, (operation, make, inputs) in single.items():
        if getattr(kernels, operation) is not getattr(reference, operation):
            fast, plain = steps(make(kernels), inputs), steps(make(reference), inputs)
            for step in fast:
                yield _row(f"{name}, {step}", fast[step], plain[step])
    for form, other, step, name, batch, fields in _WHOLE_MODELS.get(BACKEND, ()):
        model = _BUILDERS[name](**fields)
        blocks, (size, _) = model.config.num_layers, model.config.image_size
        label = f"{form}, {name} of {blocks} blocks, {size} pixels, batch {batch}, {step}"
        yield _row(label, *_whole_model(form, other, step, model, batch))


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
        *(
            (form, getattr(reference, form), step, "S/16", 8, {})
            for form in ("layer_norm", "attention")
            for step in ("forward", "gradient of the weights")
        ),
        ("gelu", reference.gelu, "forward", "B/16", 1, _MANY),
    ],
    "openvino": [
        (form, getattr(reference, form), "forward", "S/16", batch, {})
        for form in ("layer_norm", "attention", "linear", "gelu")
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

    def with_form(chosen: Any) -> Callable[[], Any]:
        put = functools.partial(mock.patch.object, place, form, chosen)
        if BACKEND == "openvino":
            own = type(model).from_config(model.get_config())  # compiled once, with this form
            with put():
                own.predict_on_batch(images)
            return lambda: own.predict_on_batch(images)

        def forward(images: Any) -> Any:
            with put():
                return model(images, training=False)

        def loss(*weights: Any) -> Any:
            with put():
                return model.stateless_call(weights, fixed, images, training=False)[0]

        if step == "forward":
            return steps(forward, [keras.ops.convert_to_tensor(images)])["forward"]
        return steps(loss, weights)["with gradient"]

    return with_form(getattr(place, form)), with_form(other)


if __name__ == "__main__":
    print(report.markdown(BACKEND, list(measure())))
