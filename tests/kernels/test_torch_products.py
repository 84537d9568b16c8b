"""torch's products by oneDNN: the rule that chooses them, and the numbers they give."""

import keras
import numpy as np
import pytest

from keras_vit import kernels
from keras_vit.kernels import reference
from tests.helpers import assert_close, random_tiny, randomise, skip_without_bfloat16, to_numpy
from tests.kernels.test_kernels import CASES, LINEAR, TOLERANCE
from tests.kernels.test_kernels import check as check_kernel
from tests.plain import normal

if keras.backend.backend() == "torch":
    import torch
    from torch.autograd import forward_ad

    from keras_vit.kernels import torch_products
    from keras_vit.kernels.torch import linear_then_gelu
    from keras_vit.training import enable_lora

IMAGES = normal(2, 16, 16, 3)


def choose(monkeypatch, for_all, before_gelu):
    """Sets the operation for all products, and the one for products that a GELU follows."""
    monkeypatch.setattr(torch_products, "_linear", for_all)
    monkeypatch.setattr(torch_products, "_linear_gelu", before_gelu)


def counting_operation(calls):
    """oneDNN's operation, which appends what follows the product (none, gelu) to `calls`."""
    operation = torch_products._operation()

    def counted(*arguments):
        calls.append(arguments[3])
        return operation(*arguments)

    return counted


@pytest.fixture
def onednn(monkeypatch):
    """Products by oneDNN, as on an AMD processor with AVX-512; returns the list of calls."""
    calls = []
    choose(monkeypatch, counting_operation(calls), counting_operation(calls))
    return calls


@pytest.fixture
def before_gelu(monkeypatch):
    """oneDNN before a GELU alone, as on a Xeon with AVX-512; returns the list of calls."""
    calls = []
    choose(monkeypatch, None, counting_operation(calls))
    return calls


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LINEAR)
def test_products_by_onednn_equal_the_reference(name, dtype, onednn):
    """Value and gradients, with and without a bias."""
    if dtype == "bfloat16":
        skip_without_bfloat16()
    check_kernel(*CASES[name], dtype)
    assert len(onednn) == 3  # the product, and both products of its gradient


@pytest.mark.parametrize(("columns", "calls"), [(8, 3), (4, 0)])
def test_onednn_gets_no_matrix_with_gaps_in_memory(columns, calls, onednn, monkeypatch):
    """oneDNN is a thousand times slower with a view of some columns, or the gradient of a mean."""
    counted = torch_products._linear

    def checked(rows, matrix, *others):
        assert matrix.is_contiguous() or matrix.T.is_contiguous()
        return counted(rows, matrix, *others)

    monkeypatch.setattr(torch_products, "_linear", checked)
    x = torch.from_numpy(normal(5, 6)).requires_grad_()
    kernel = torch.from_numpy(normal(6, 8, seed=1)[:, :columns]).requires_grad_()
    kernels.linear(x, kernel, None).mean().backward()
    assert len(onednn) == calls
    share = 1 / (5 * columns)
    assert_close(x.grad, (kernel.sum(1) * share).expand(5, 6).detach(), 1e-6)
    assert_close(kernel.grad, (x.sum(0) * share)[:, None].expand(6, columns).detach(), 1e-6)


@pytest.mark.parametrize("by_onednn", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("approximate", [True, False])
def test_a_product_with_its_gelu_equals_the_reference(
    approximate, use_bias, dtype, by_onednn, before_gelu, monkeypatch
):
    """By oneDNN in one pass without a gradient, else by torch, which may overwrite the product."""
    if not by_onednn:
        choose(monkeypatch, None, None)
    elif dtype == "bfloat16":
        skip_without_bfloat16()
    calls = ["gelu"] * (by_onednn and dtype != "float16")
    shapes = [(2, 5, 6), (6, 7), (7,)]
    x, kernel, bias = (torch.from_numpy(normal(*s)).to(getattr(torch, dtype)) for s in shapes)
    bias = bias if use_bias else None
    expected = to_numpy(reference.gelu(reference.linear(x, kernel, bias), approximate))
    with torch.no_grad():
        assert_close(linear_then_gelu(x, kernel, bias, approximate), expected, TOLERANCE[dtype])
    assert before_gelu == calls
    recorded = linear_then_gelu(x.requires_grad_(), kernel, bias, approximate)
    assert recorded.requires_grad
    assert before_gelu == calls
    assert_close(recorded.detach(), expected, TOLERANCE[dtype])


def with_activation(part):
    part.activation = keras.activations.relu


def with_another_call(part):
    part.call = lambda inputs, training=None: inputs[..., :1] + part.kernel[0]


CHANGED_PARTS = {
    "hook": lambda part: part.register_forward_hook(lambda layer, inputs, output: output * 2),
    "activation": with_activation,
    "quantised": lambda part: part.quantize("int8"),
    "call": with_another_call,
}


@pytest.mark.parametrize("change", CHANGED_PARTS)
def test_what_a_user_changed_is_not_fused_with_the_gelu(change, before_gelu):
    """The GELU of the layer's own output."""
    model = random_tiny()
    CHANGED_PARTS[change](model.get_layer("block_0").mlp.dense_0)
    expected = to_numpy(model(torch.from_numpy(IMAGES)).detach())  # by Keras
    with torch.no_grad():
        found = to_numpy(model(torch.from_numpy(IMAGES)))
    assert not before_gelu
    assert_close(found, expected, 1e-6)


def test_a_processor_that_fuses_the_gelu_computes_other_products_by_torch(before_gelu):
    """One fused pass per block in `predict`, and none in training."""
    model = random_tiny(num_layers=2)
    model.predict(IMAGES, verbose=0)
    assert before_gelu == ["gelu", "gelu"]
    model(torch.from_numpy(IMAGES), training=True).square().sum().backward()
    assert before_gelu == ["gelu", "gelu"]


def first_kernel(model):
    return model.get_layer("block_0").mlp.dense_0.kernel


CHANGES = {
    "assign": lambda model, path: first_kernel(model).assign(normal(16, 32, seed=3)),
    "data": lambda model, path: first_kernel(model).value.data.mul_(2),
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
    choose(monkeypatch, None, None)
    assert_close(found, model.predict(IMAGES, verbose=0), 2e-6)


def test_an_mlp_of_a_width_that_that_of_the_tokens_does_not_divide(onednn, monkeypatch):
    """oneDNN computes it, as in SigLIP So400m: 4304 units and 1152 numbers per token."""
    found = random_tiny(mlp_dim=24).probabilities(IMAGES, prepared=True)
    assert onednn
    choose(monkeypatch, None, None)
    assert_close(found, random_tiny(mlp_dim=24).probabilities(IMAGES, prepared=True), 2e-6)


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


def apply_gelu(x, k, b):
    return linear_then_gelu(x, k, b, True)


@pytest.mark.parametrize(
    ("way", "gelu"),
    [*((way, False) for way in WAYS), *((way, True) for way in ("vmap", "compile", "autocast"))],
)
def test_every_transformation_of_torch_gives_the_numbers_of_torch(way, gelu, request, monkeypatch):
    """oneDNN steps aside where torch needs its own operation; so does its pass with a GELU."""
    calls = request.getfixturevalue("before_gelu" if gelu else "onednn")
    function = apply_gelu if gelu else kernels.linear
    tensors = [torch.from_numpy(normal(*s)) for s in ((3, 6), (6, 4), (4,))]
    with torch.set_grad_enabled(not gelu):
        found = to_numpy(WAYS[way](function, *tensors).detach())
        assert not (gelu and calls)
        choose(monkeypatch, None, None)
        assert_close(found, to_numpy(WAYS[way](function, *tensors).detach()), 1e-6)


def test_an_empty_batch_and_other_types_are_computed_by_torch(onednn):
    """Float64 and zero rows."""
    kernel = torch.ones(3, 4)
    assert kernels.linear(torch.ones(0, 3), kernel, None).shape == (0, 4)
    assert kernels.linear(torch.ones(2, 3).double(), kernel.double(), None).dtype == torch.float64
    assert not onednn


_FRESH = """
import sys
import torch
import numpy as np
if sys.argv[1] == "missing":
    torch.ops.mkldnn = object()
import keras_vit
from keras_vit.kernels import torch_products
model = keras_vit.VisionTransformer.from_preset("vit_digits")
images = np.random.default_rng(0).standard_normal((9, 16, 16, 1), dtype="float32")
np.save(sys.argv[2], model.predict(images, verbose=0))
print(torch_products.are_chosen(), torch_products._linear_gelu is not None)
"""


def test_a_new_process_gives_the_same_numbers_with_and_without_the_operation(nursery, tmp_path):
    """The rule is overruled, so that every processor compares oneDNN with torch."""
    found = {}
    for operation in ("missing", "present"):
        file, variables = tmp_path / f"{operation}.npy", {"KERAS_VIT_PRODUCTS": "onednn"}
        done = nursery.run("-c", _FRESH, operation, file, variables=variables)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-2:] == 2 * [str(operation == "present")]
        found[operation] = np.load(file)
    assert_close(found["present"], found["missing"], 2e-6)


def test_canary_torch_has_the_operation_of_onednn_and_rearranges_weights():
    """If this fails, AMD processors compute at MKL's speed, or bfloat16 is slower.

    See kernels/torch_products.py, and `kept` there.
    """
    rows, matrix = torch.ones(3, 4), torch.rand(5, 4)
    kept = torch.ops.mkldnn._reorder_linear_weight(matrix)
    found = torch_products._operation()(rows, kept, None, "none", [], "")
    assert_close(to_numpy(found), to_numpy(rows @ matrix.T))


def test_canary_torch_says_whether_a_transform_is_active():
    """`torch._C._are_functorch_transforms_active` is true inside `torch.func` alone."""
    answers = []
    active = torch._C._are_functorch_transforms_active
    torch.func.vmap(lambda x: answers.append(active()) or x)(torch.ones(2))
    assert answers == [True]
    assert not active()


def test_a_counter_of_flops_sees_every_product(onednn):
    """torch has no formula for oneDNN's operation; keras_vit registers one."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        kernels.linear(torch.ones(2, 3), torch.ones(3, 4), torch.ones(4))
    assert counter.get_total_flops() == 2 * 2 * 3 * 4
    assert onednn == ["none"]
