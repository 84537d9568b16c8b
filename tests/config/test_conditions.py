"""The language in which the lexicon and the dialects state conditions on a configuration."""

import pytest

from keras_vit.config import ViTConfig
from keras_vit.config.weights.conditions import parse, state_others

pytestmark = pytest.mark.without_backend

SIZES = {"patch_size": 4, "hidden_size": 8, "mlp_dim": 8, "num_heads": 2, "num_layers": 1}
CASES = (
    ("", {}, None),
    ("mask_token", {"mask_token": True}, {}),
    ("mask_token!", {}, {"mask_token": True}),
    ("num_registers", {"num_registers": 2}, {}),
    ("num_class_tokens!=1", {"num_class_tokens": 2}, {}),
    ("projection_dim!", {}, {"projection_dim": 4}),
    ("has_class_token!", {"pooling": "gap"}, {}),
    ("num_classes=0", {"num_classes": 0}, {}),
    ("pooling=gap|map", {"pooling": "map"}, {}),
    ("pooling!=gap|map", {}, {"pooling": "map"}),
    ("qkv_bias=(True,False,True)", {"qkv_bias": (True, False, True)}, {}),
    ("qkv_bias!=True|False", {"qkv_bias": (True, False, True)}, {}),
    ("relative_position_bias!=None", {"relative_position_bias": "block"}, {}),
    ("numerics.layer_norm_epsilon=1e-6", {}, {"numerics": {"layer_norm_epsilon": 1e-5}}),
    ("rope.form=mixed", {"rope": {"form": "mixed"}}, {"rope": {"form": "axial"}}),
    ("rope.form=mixed", {"rope": {"form": "mixed"}}, {}),
    ("rope.offset", {"rope": {"offset": 1.0}}, {}),
    ("pre_norm=patch_bias", {"pre_norm": True}, {}),
    ("grid!=source_grid", {"position_grid": (3, 3)}, {}),
    ("patch_size!=square", {"patch_size": (4, 8)}, {}),
    ("image_size=square", {}, {"image_size": None}),
    ("mlp=gated sub_norm_mlp", {"mlp": "gated", "sub_norm_mlp": True}, {"mlp": "gated"}),
    ("mask_token or mlp=gated", {"mlp": "gated"}, {}),
)


@pytest.mark.parametrize(("text", "met", "unmet"), CASES)
def test_a_condition_holds_for_one_model_and_not_for_another(text, met, unmet):
    """Without terms it holds for every model."""
    assert parse(text).holds(ViTConfig(**SIZES | met))
    if unmet is not None:
        assert not parse(text).holds(ViTConfig(**SIZES | unmet))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mask_tokens", "mask_tokens is no field of ViTConfig. Did you mean 'mask_token'"),
        ("mlp=gated or mask_tokens!", "mask_tokens is no field of ViTConfig"),
        ("rope.from=axial", "rope.from is no field of ViTConfig. Did you mean 'form'"),
        ("ropes.form=axial", "ropes.form is no field of ViTConfig"),
        ("replace", "replace is no field of ViTConfig"),
        ("pooling=gap|mean", "pooling cannot be mean, nor is that another field"),
        ("mask_token=1", "mask_token cannot be 1"),
        ("num_registers=many", "num_registers cannot be many"),
        ("mlp_dim=square", "mlp_dim cannot be square"),
        ("has_class_token=yes", "has_class_token cannot be yes"),
    ],
)
def test_a_condition_with_an_unknown_word_is_refused(text, message):
    """The message names the field, or the value that the field cannot have."""
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_the_condition_of_the_other_values_is_one_that_is_read():
    """With several values, and with a value of several numbers."""
    text = state_others("qkv_bias", True, (True, False, True))
    assert text == "qkv_bias!=True|(True,False,True)"
    biases = (True, False, True), (True, True, False), True, False
    models = [ViTConfig(**SIZES, qkv_bias=own) for own in biases]
    assert [parse(text).holds(model) for model in models] == [False, True, False, True]
