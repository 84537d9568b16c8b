"""Costs against published figures, and against the counter and autograd of torch."""

import pytest

from keras_vit.models import flops
from keras_vit.models.builders import variant
from tests.helpers import tiny

JFT_IMAGES = 303e6
PAPER = {
    ("vit_b32", 7): 55,
    ("vit_l16", 14): 1567,
    ("vit_h14", 14): 4262,
    ("r50_vit_l32", 7): 246,
}
"""(model, epochs on JFT-300M) -> exaFLOPs of pre-training: table 6 of the paper."""

TIMM = {"vit_ti16": 1.1, "vit_s16": 4.3, "vit_b16": 16.9, "vit_b32": 4.4, "vit_l16": 59.7}
"""Billions of multiply-adds at 224 pixels by timm's model cards, without attention's products."""


@pytest.mark.parametrize(("name", "epochs"), PAPER)
def test_pretraining_costs_equal_table_6(name, epochs):
    """Within 1.5 %: the table is rounded, and JFT-300M has about 303 million images."""
    config = variant(name).config().replace(num_classes=18_291)
    actual = flops(config).training * JFT_IMAGES * epochs / 1e18
    assert abs(actual / PAPER[name, epochs] - 1) < 0.015, actual


@pytest.mark.parametrize("name", TIMM)
def test_forward_costs_equal_the_model_cards_of_timm(name):
    """To the digit that the cards give; timm's counter also counts norms, about 0.2 %."""
    actual = flops(variant(name).config())
    counted = (actual.forward - actual.parts["attention_products"]) / 2e9
    assert abs(counted - TIMM[name]) <= 0.05 + 0.005 * counted


NO_TOKEN = {"tokens": {"class_tokens": 0}}
MODELS = {
    "token": {},
    "map": {"pool": {"kind": "map"}, **NO_TOKEN, "representation_size": 6},
    "unpooled": {"pool": {"kind": "unpooled"}, **NO_TOKEN},
    "gated": {"tokens": {"registers": 3}, "block": {"gated": True, "activation": "silu"}},
    "two tokens": {"pool": {"kind": "token_and_distillation"}, "tokens": {"distillation": True}},
    "projection": {"pool": {"kind": "map_of_patches", "mlp_dim": 8}, "projection_size": 6},
    "hybrid": {"stem": {"kind": "resnet", "units": (1, 2), "width_factor": 0.5}, "patch_size": 1},
}


@pytest.mark.parametrize("name", MODELS)
def test_forward_and_backward_costs_equal_the_counter_of_torch(name):
    """torch counts the operations that run.

    Its counter counts matrix products but not the fused attention of CPUs, which is switched off.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = tiny(image_size=32, **MODELS[name])
    images = torch.zeros(1, 32, 32, 3)
    expected = flops(model)
    assert flops(tiny(image_size=None, **MODELS[name]).config, 32) == expected
    products = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with products, FlopCounterMode(display=False) as counter:
        logits = model(images, training=True)
    assert counter.get_total_flops() == expected.forward
    with FlopCounterMode(display=False) as counter:
        logits.sum().backward()
    assert counter.get_total_flops() == expected.training - expected.forward
