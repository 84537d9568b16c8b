"""torch.compile of models: one graph, in inference and in training, also where oneDNN computes."""

import functools
import shutil

import keras
import numpy as np
import pytest

from keras_vit import kernels
from tests.families import FAMILIES
from tests.helpers import assert_close, one_graph, random_tiny, skip_without_bfloat16, to_numpy
from tests.kernels.test_torch_products import WAYS, choose
from tests.plain import HYBRID, normal
from tests.runs import THOROUGH

if keras.backend.backend() == "torch":
    import torch

    from keras_vit.kernels import torch_products

MODELS = {
    "dinov3 of any size": {**FAMILIES["dinov3"], "image_size": None, "position_grid": (2, 2)},
    "vit in 16 bits": {"dtype": "mixed_float16"},
    "remat": {"remat": True},
    "sincos2d": {"position": "sincos2d"},
    "hybrid in 16 bits": {**HYBRID, "dtype": "mixed_float16", "remat": True},
    **FAMILIES,
}
IMAGES = normal(2, 16, 16, 3)


@pytest.fixture(autouse=True)
def as_on_amd(monkeypatch):
    """oneDNN computes all products outside of compiled programs."""
    choose(monkeypatch, torch_products._operation(), torch_products._operation())
    torch._dynamo.reset()


OPERATORS = {"product", "product_then_gelu", "attention"}


class Recorder:
    """A backend of torch's compiler that runs a graph as it is, and records oneDNN's operators."""

    def __init__(self):
        self.found = set()

    def __call__(self, module, inputs):
        calls = (str(node.target) for node in module.graph.nodes if node.op == "call_function")
        self.found |= {name.split(".")[1] for name in calls if name.startswith("keras_vit.")}
        return module.forward


@one_graph
@pytest.mark.parametrize("name", MODELS if THOROUGH else ["dinov3 of any size"])
def test_a_compiled_model_is_one_graph(name):
    """A part that the compiler cannot follow would split the graph and cost most of the gain."""
    model, backend = random_tiny(**MODELS[name]), Recorder()
    images = torch.from_numpy(IMAGES)
    with torch.inference_mode():
        expected = model(images, training=False)
        found = torch.compile(model, backend=backend, fullgraph=True)(images, training=False)
    assert_close(found, to_numpy(expected), 1e-2 if "16" in name else 1e-5)
    assert "16" in name or "product" in backend.found


@one_graph
@pytest.mark.nightly
@pytest.mark.parametrize("compiles_gradient", [False, True])
def test_a_compiled_program_computes_by_onednn(compiles_gradient):
    """Its products, the GELU after them and attention in inference; products with gradients."""
    model, backend = random_tiny(image_size=192, patch_size=8), Recorder()  # enough for attention
    images = torch.from_numpy(normal(1, 192, 192, 3))
    with torch.set_grad_enabled(compiles_gradient):
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        outputs = compiled(images, training=False)
        assert_close(outputs, to_numpy(model(images, training=False)), 1e-5)
    assert backend.found == ({"product"} if compiles_gradient else OPERATORS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_operators_pass_the_checks_of_torch(with_bias, dtype):
    """Schema, fake tensors, gradients, and compilation with known and open sizes."""
    if dtype == "bfloat16":
        skip_without_bfloat16()
    of, ours = getattr(torch, dtype), torch.ops.keras_vit
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == "bfloat16" else {}
    check = functools.partial(torch.library.opcheck, **close)
    given = [torch.from_numpy(normal(*shape)).to(of) for shape in ((5, 6), (6, 4), (4,))]
    given[2:] = given[2:] if with_bias else [None]
    check(ours.product_then_gelu, (*given, True))
    check(ours.product, tuple(x if x is None else x.requires_grad_() for x in given))
    queries = torch.from_numpy(normal(1, 130, 2, 4)).to(of)
    bias = torch.from_numpy(normal(1, 2, 130, 130)) if with_bias else None
    check(ours.attention, (queries, queries, queries, bias))


@pytest.mark.parametrize("name", ["vmap", "jvp", "second derivative", "dual weight"])
def test_compiled_transformations_of_torch_give_the_numbers_of_torch(name):
    """They have no rule for the operators, which would give wrong numbers without an error."""
    arrays = [torch.from_numpy(normal(*shape)) for shape in ((3, 6), (6, 4), (4,))]
    if name == "dual weight":
        found = WAYS[name](torch.compile(kernels.linear, backend="aot_eager"), *arrays)
    else:
        transform = functools.partial(WAYS[name], kernels.linear)
        found = torch.compile(transform, backend="aot_eager", fullgraph=True)(*arrays)
    assert_close(found, to_numpy(WAYS[name](lambda x, k, b: x @ k + b, *arrays)), 1e-6)


def test_a_gradient_that_is_compiled_has_no_operation_of_onednn(monkeypatch):
    """Under `fit` with `jit_compile=True` torch may compile a gradient apart from its forward pass.

    torch's compiler takes oneDNN's operation with constant weights alone.
    """
    rows = torch.from_numpy(normal(5, 6)).requires_grad_()
    matrix = torch.from_numpy(normal(6, 4, seed=1)).requires_grad_()
    y = torch_products.product(rows, matrix, None)
    expected = torch.autograd.grad(y.sum(), (rows, matrix), retain_graph=True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(torch_products, "_linear", None)
    found = torch.autograd.grad(y.sum(), (rows, matrix))
    for gradient, reference in zip(found, expected, strict=True):
        assert_close(gradient, to_numpy(reference), 1e-6)


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles by g++")
def test_a_compiled_fit_moves_the_weights_as_fit_does():
    """By torch's own compiler."""
    found = []
    for compiles in (True, False):
        model = random_tiny()
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=compiles)
        model.fit(IMAGES, np.zeros((2, 5)), batch_size=2, epochs=3, verbose=0)
        found.append([to_numpy(weight) for weight in model.weights])
    for weight, reference in zip(*found, strict=True):
        assert_close(weight, reference, 1e-5)
