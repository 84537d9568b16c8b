"""torch's products by oneDNN: the rule that chooses them, and the numbers they give."""

import keras
import numpy as np
import pytest

from keras_vit import kernels, processor
from keras_vit.errors import ConfigError
from keras_vit.kernels import reference
from keras_vit.processor import Processor, products_of_torch
from tests.helpers import assert_close, normal, numpy_of, random_tiny, randomise
from tests.test_kernels import TOLERANCE, assert_equal, value_and_gradients

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="of torch")
if keras.backend.backend() == "torch":
    import torch
    from torch.autograd import forward_ad

    from keras_vit.finetune import enable_lora
    from keras_vit.kernels import torch_products

IMAGES = normal(2, 16, 16, 3)


@pytest.fixture
def onednn(monkeypatch):
    """Products by oneDNN, as on a processor for which the rule chooses it; returns the calls."""
    operation, calls = torch_products._operation(), []

    def counted(*arguments):
        calls.append(arguments[0].shape)
        return operation(*arguments)

    monkeypatch.setattr(torch_products, "_linear", counted)
    return calls


@pytest.mark.parametrize(
    ("vendor", "flags", "choice"),
    [
        ("AuthenticAMD", {"avx2", "avx512f", "avx512_bf16"}, "onednn"),
        ("AuthenticAMD", {"avx2"}, "torch"),
        ("GenuineIntel", {"avx2", "avx512f", "amx_bf16"}, "torch"),
        ("", set(), "torch"),
    ],
)
def test_the_rule_depends_on_the_processor_alone(vendor, flags, choice, monkeypatch):
    """The setting comes before the rule, and `auto` is the rule."""
    found = Processor("x", vendor, frozenset(flags))
    monkeypatch.delenv("KERAS_VIT_PRODUCTS", raising=False)
    assert {products_of_torch(found)[0] for _ in range(3)} == {choice}
    for asked, wanted in (("auto", choice), ("torch", "torch"), ("onednn", "onednn")):
        monkeypatch.setenv("KERAS_VIT_PRODUCTS", asked)
        assert products_of_torch(found)[0] == wanted
    monkeypatch.setenv("KERAS_VIT_PRODUCTS", "mkl")
    with pytest.raises(ConfigError, match="expected auto, onednn, torch"):
        products_of_torch(found)


def test_vendor_and_instruction_sets_are_read_from_the_system(monkeypatch, tmp_path):
    """Of Linux; another system tells no vendor, and the rule then leaves torch's choice."""
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "_CPUINFO", file)
    unknown = processor.processor.__wrapped__()
    assert (unknown.vendor, unknown.instruction_sets) == ("", ())
    file.write_text(
        "vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9B14\nflags\t\t: avx512f avx2 sse\n"
    )
    found = processor.processor.__wrapped__()
    assert (found.vendor, found.name) == ("AuthenticAMD", "AMD EPYC 9B14")
    assert found.instruction_sets == ("avx2", "avx512f")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("x", "kernel", "axes"), [((2, 5, 6), (6, 3, 4), 1), ((2, 5, 3, 4), (3, 4, 6), 2)]
)
def test_products_by_onednn_equal_the_reference(x, kernel, axes, with_bias, dtype, onednn):
    """Value and gradients, with and without a bias."""
    arrays = [normal(*x), normal(*kernel, seed=1)]
    arrays += [normal(*kernel[axes:], seed=2)] if with_bias else []

    def of(module):
        return lambda x, kernel, bias=None: module.linear(x, kernel, bias, axes)

    found = value_and_gradients(of(kernels), arrays, dtype)
    assert len(onednn) == 3  # the product, and both products of its gradient
    rounded = [numpy_of(keras.ops.convert_to_tensor(array, dtype=dtype)) for array in arrays]
    expected = value_and_gradients(of(reference), rounded, "float32")
    assert_equal(found, expected, TOLERANCE[dtype])


def model_step(model):
    """Output and gradients of a training step, as arrays."""
    output = model(torch.from_numpy(IMAGES), training=True)
    output.square().sum().backward()
    gradients = [weight.value.grad for weight in model.trainable_weights]
    found = [numpy_of(x.detach()) for x in (output, *gradients) if x is not None]
    model.zero_grad()
    return found


def test_a_model_gives_the_numbers_of_the_fallback(onednn, monkeypatch):
    """Output and all gradients, and the same after the operation went missing."""
    model = random_tiny(num_layers=2)
    found = model_step(model)
    assert onednn
    monkeypatch.setattr(torch_products, "_linear", None)
    for got, want in zip(found, model_step(model), strict=True):
        assert_close(got, want, 2e-6)


CHANGES = {
    "assign": lambda model, path: model.get_layer("block_0").mlp.dense_0.kernel.assign(
        normal(16, 32, seed=3)
    ),
    "data": lambda model, path: model.get_layer("block_0").mlp.dense_0.kernel.value.data.mul_(2),
    "load_weights": lambda model, path: model.load_weights(path),
    "fit": lambda model, path: model.fit(IMAGES, np.zeros((2, 5)), verbose=0),
    "lora": lambda model, path: (enable_lora(model, rank=2), randomise(model, seed=4)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_predictions_follow_every_change_of_the_weights(change, onednn, monkeypatch, tmp_path):
    """No copy of a weight is kept."""
    randomise(random_tiny(), seed=5).save_weights(tmp_path / "x.weights.h5")
    model = random_tiny()
    model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    before = model.predict(IMAGES, verbose=0)
    CHANGES[change](model, tmp_path / "x.weights.h5")
    calls = len(onednn)
    found = model.predict(IMAGES, verbose=0)
    assert len(onednn) > calls
    assert np.abs(found - before).max() > 1e-3
    monkeypatch.setattr(torch_products, "_linear", None)
    assert_close(found, model.predict(IMAGES, verbose=0), 2e-6)


def under_autocast(f, x, k, b):
    with torch.autocast("cpu", torch.bfloat16):
        y = f(x, k, b)
    assert y.dtype == torch.bfloat16
    return y


def dual_weight(f, x, k, b):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(x, forward_ad.make_dual(k, k), b)).tangent


def gradient_of_gradient(f, x, k, b):
    x, k = x.clone().requires_grad_(), k.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(x, k, b).square().sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), k)[0]


WAYS = {
    "second derivative": lambda f, x, k, b: torch.func.hessian(lambda x: f(x, k, b).sum() ** 2)(x),
    "vmap": lambda f, x, k, b: torch.vmap(lambda x: f(x[None], k, b))(x),
    "jvp": lambda f, x, k, b: torch.func.jvp(lambda k: f(x, k, b), (k,), (k,))[1],
    "compile": lambda f, x, k, b: torch.compile(f, backend="eager")(x, k, b),
    "autocast": under_autocast,
    "dual weight": dual_weight,
    "create_graph": gradient_of_gradient,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_transformation_of_torch_gives_the_numbers_of_torch(way, onednn, monkeypatch):
    """oneDNN steps aside where torch needs its own operation."""
    x, k, b = (torch.from_numpy(normal(*s)) for s in ((3, 6), (6, 4), (4,)))
    found = numpy_of(WAYS[way](kernels.linear, x, k, b).detach())
    monkeypatch.setattr(torch_products, "_linear", None)
    assert_close(found, numpy_of(WAYS[way](kernels.linear, x, k, b).detach()), 1e-6)


def test_a_counter_of_flops_sees_every_product(onednn):
    """A mode of torch's dispatcher gets torch's own operations."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        kernels.linear(torch.ones(2, 3), torch.ones(3, 4), torch.ones(4))
    assert counter.get_total_flops() == 2 * 2 * 3 * 4
    assert not onednn


def test_an_empty_batch_and_other_types_are_computed_by_torch(onednn):
    """Float64 and zero rows."""
    kernel = torch.ones(3, 4)
    assert kernels.linear(torch.ones(0, 3), kernel, None).shape == (0, 4)
    assert kernels.linear(torch.ones(2, 3).double(), kernel.double(), None).dtype == torch.float64
    assert not onednn


@pytest.mark.parametrize("fault", ["missing", "changed", "no oneDNN"])
def test_without_the_operation_torch_computes(fault, monkeypatch):
    """A torch that has dropped or changed it, or that was built without oneDNN."""
    if fault == "missing":
        monkeypatch.setattr(torch.ops, "mkldnn", object())
    elif fault == "changed":
        monkeypatch.setattr(torch_products, "_SCHEMA", "another")
    else:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert torch_products._operation() is None


def test_canary_torch_has_the_operation_of_onednn():
    """If this fails, AMD processors compute at MKL's speed: see kernels/torch_products.py."""
    assert torch_products._operation() is not None
