"""The language in which the lexicon and the families state conditions on a configuration."""

import pytest

from keras_vit.config import ViTConfig
from keras_vit.config.weights.conditions import parse, state_others

pytestmark = pytest.mark.without_backend

SIZES = {"patch_size": 4, "hidden_size": 8, "mlp_dim": 8, "num_heads": 2, "num_layers": 1}
SWIGLU = {"block": {"gated": True}}
BIASES = {"block": {"qkv_bias": (True, False, True)}}
GAP = {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0}}
CASES = (
    ("", {}, None),
    ("tokens.mask", {"tokens": {"mask": True}}, {}),
    ("tokens.mask!", {}, {"tokens": {"mask": True}}),
    ("tokens.registers", {"tokens": {"registers": 2}}, {}),
    ("tokens.class_tokens!=1", {"tokens": {"class_tokens": 2}}, {}),
    ("tokens.class_tokens!", GAP, {}),
    ("projection_size!", {}, {"projection_size": 4}),
    ("num_classes=0", {"num_classes": 0}, {}),
    ("pool.kind=gap|map", {"pool": {"kind": "map"}}, {}),
    ("pool.kind!=gap|map", {}, {"pool": {"kind": "map"}}),
    ("pool.is_map", {"pool": {"kind": "map_of_patches"}}, {}),
    ("block.qkv_bias=(True,False,True)", BIASES, {}),
    ("block.qkv_bias!=True|False", BIASES, {}),
    ("relative_position_bias!=None", {"relative_position_bias": "block"}, {}),
    ("block.layer_scale!=None", {"block": {"layer_scale": 0.0}}, {}),
    ("block.epsilon=1e-6", {}, {"block": {"epsilon": 1e-5}}),
    ("rope.form=mixed", {"rope": {"form": "mixed"}}, {"rope": {"form": "axial"}}),
    ("rope.form=mixed", {"rope": {"form": "mixed"}}, {}),
    ("rope.is_learned", {"rope": {"form": "mixed_xy"}}, {}),
    ("block.mlp_bias=patch_bias", {}, {"patch_bias": False}),
    ("grid!=source_grid", {"position_grid": (3, 3)}, {}),
    ("patch_size!=square", {"patch_size": (4, 8)}, {}),
    ("image_size=square", {}, {"image_size": None}),
    ("block.gated block.mlp_bias!", {"block": {"gated": True, "mlp_bias": False}}, SWIGLU),
    ("tokens.mask or block.gated", SWIGLU, {}),
)


@pytest.mark.parametrize(("text", "met", "unmet"), CASES)
def test_a_condition_holds_for_one_model_and_not_for_another(text, met, unmet):
    """Without terms it holds for every model."""
    assert parse(text).holds(ViTConfig(**SIZES | met))
    if unmet is not None:
        assert not parse(text).holds(ViTConfig(**SIZES | unmet))


def test_the_condition_of_the_other_values_is_one_that_is_read():
    """With several values, and with a value of several numbers."""
    text = state_others("block.qkv_bias", True, (True, False, True))
    assert text == "block.qkv_bias!=True|(True,False,True)"
    biases = (True, False, True), (True, True, False), True, False
    models = [ViTConfig(**SIZES, block={"qkv_bias": own}) for own in biases]
    assert [parse(text).holds(model) for model in models] == [False, True, False, True]
