"""On torch the inference function keeps weights as products take them, and sees every change."""

import keras
import numpy as np
import pytest

from keras_vit.models.inference import run
from keras_vit.support.processor import Processor
from tests.families import FAMILIES
from tests.helpers import assert_close, random_tiny, skip_without_bfloat16, to_numpy
from tests.models.inference.test_inference import OF_EVERY_BACKEND
from tests.plain import normal

if keras.backend.backend() == "torch":
    import torch

    from keras_vit.kernels import torch_products

IMAGES = normal(2, 16, 16, 3)
BFLOAT16 = 2e-2


DTYPES = ["float32", "bfloat16", "mixed_bfloat16"]


@pytest.fixture
def rearranged(monkeypatch):
    """Products in bfloat16 as on a processor that multiplies it; returns the types of weights."""
    kinds = []
    rearrange = torch.ops.mkldnn._reorder_linear_weight

    def counted(weight):
        kinds.append(weight.dtype)
        return rearrange(weight)

    machine = Processor("x", "GenuineIntel", frozenset({"avx512f", "amx_bf16"}))
    monkeypatch.setattr(torch_products, "processor", lambda: machine)
    monkeypatch.setattr(torch_products, "_linear_gelu", torch_products._operation())
    monkeypatch.setattr(torch_products, "_rearrange", counted)
    return kinds


@pytest.fixture(params=DTYPES)
def model(request, rearranged):
    if request.param != "float32":
        skip_without_bfloat16()
    return random_tiny(dtype=request.param, num_layers=2)


def tolerance(model):
    return 1e-5 if model.compute_dtype == "float32" else BFLOAT16


def check(model):
    """`model(images)` with gradients is Keras's own call of every layer."""
    assert_close(run(model, IMAGES), to_numpy(model(IMAGES)), tolerance(model))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fields", FAMILIES.values(), ids=FAMILIES)
def test_the_outputs_are_those_of_every_layer(fields, dtype, rearranged):
    if dtype != "float32":
        skip_without_bfloat16()
    check(random_tiny(dtype=dtype, **fields))


def test_weights_in_bfloat16_are_rearranged_once_and_others_are_not_copied(model, rearranged):
    check(model)
    check(model)
    run(model, IMAGES, ["encoder_norm"])
    products = 0 if model.compute_dtype == "float32" else 4 * model.config.num_layers
    assert rearranged == products * [torch.bfloat16]
    model.compile()
    check(model)
    assert len(rearranged) == 2 * products


def _kernel(model):
    return model.get_layer("block_1").mlp.dense_1.kernel.value


def _hook(model):
    model.get_layer("block_1").mlp.register_forward_hook(lambda layer, inputs, output: 2 * output)


CHANGES = {
    "data replaced": lambda model: setattr(_kernel(model), "data", -_kernel(model).data),
    "data": lambda model: _kernel(model).data.neg_(),
    "activation": lambda model: setattr(
        model.get_layer("block_0").mlp.dense_1, "activation", keras.activations.relu
    ),
    **{change.__name__: change for change in (_hook, *OF_EVERY_BACKEND)},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_counts_at_once(change, model):
    before = run(model, IMAGES)
    change(model)
    after = run(model, IMAGES)
    assert np.abs(after - before).max() > tolerance(model) * np.abs(before).max()
    check(model)


def test_autocast_and_transforms_compute_by_plain_products(model, rearranged):
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast = run(model, IMAGES)
    transformed = []
    torch.func.vmap(lambda x: transformed.append(run(model, IMAGES)) or x)(torch.ones(2))
    assert rearranged == []
    expected = run(model, IMAGES)
    assert_close(under_autocast, expected, BFLOAT16)
    assert_close(transformed[0], expected, tolerance(model))
