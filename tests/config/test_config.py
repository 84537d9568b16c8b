"""`ViTConfig`: the fields it accepts and refuses, its derived sizes, and its round trip."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.config import Numerics, ResNetStem, Rope, ViTConfig
from keras_vit.config.numerics import GELU_FORMS, POSITION_RESIZES, STD_CONV_FORMS
from keras_vit.config.rope import ROPE_FORMS
from keras_vit.config.vit_rules import FAMILY_POOLINGS, MLPS, NORMS, POOLINGS
from keras_vit.errors import ConfigError, KerasViTError
from tests.words import raises, through_json

pytestmark = pytest.mark.without_backend

SIZES = {"patch_size": 8, "hidden_size": 16, "mlp_dim": 32, "num_heads": 2, "num_layers": 2}
R50 = {"resnet": ResNetStem((3, 4, 9)), "patch_size": 1}


def config(**fields):
    """A small valid configuration for 32-pixel images; `fields` override."""
    return ViTConfig(**{**SIZES, "image_size": 32, **fields})


def test_ints_become_pairs_and_dicts_their_dataclasses():
    """Equal sizes give equal configurations with one hash."""
    made = config(image_size=32, patch_size=8, position_grid=3)
    assert (made.image_size, made.patch_size, made.position_grid) == ((32, 32), (8, 8), (3, 3))
    assert config(image_size=32, patch_size=8) == config(image_size=[32, 32], patch_size=(8, 8))
    assert len({config(), config(), config(num_classes=2)}) == 2
    made = config(resnet={"num_layers": [1, 2]}, patch_size=1, numerics={"gelu": "exact"})
    assert made.resnet == ResNetStem((1, 2))
    assert made.numerics == Numerics(gelu="exact")


WRONG = [
    ({"hidden_size": 0}, ["hidden_size", "positive int", "0"]),
    ({"hidden_size": 16.0}, ["hidden_size", "positive int", "16.0"]),
    ({"num_heads": True}, ["num_heads", "positive int", "True"]),
    ({"num_layers": "12"}, ["num_layers", "positive int", "'12'"]),
    ({"num_classes": -1}, ["num_classes", "int", "0 for features", "-1"]),
    ({"num_heads": 3}, ["hidden_size=16", "not divisible", "num_heads=3"]),
    ({"pooling": "tokne"}, ["pooling='tokne'", "token, gap, map", "mean 'token'"]),
    ({"pooling": None}, ["pooling=None", "token, gap, map"]),
    ({"position": "sincos"}, ["position='sincos'", "learned", "mean 'sincos2d'"]),
    ({"position": "sincos2d", "hidden_size": 18}, ["sincos2d", "multiple of 4", "18"]),
    ({"position": "sincos2d", "hidden_size": 4}, ["sincos2d", "at least 8", "4"]),
    ({"dropout_rate": 1.0}, ["dropout_rate", "[0, 1)", "1.0"]),
    ({"attention_dropout_rate": -0.1}, ["attention_dropout_rate", "[0, 1)", "-0.1"]),
    ({"stochastic_depth_rate": "a"}, ["stochastic_depth_rate", "[0, 1)", "'a'"]),
    ({"dropout_rate": float("nan")}, ["dropout_rate", "[0, 1)", "nan"]),
    ({"head_bias_init": None}, ["head_bias_init", "number", "None"]),
    ({"classifier_activation": "softmx"}, ["classifier_activation", "'softmx'", "softmax"]),
    ({"qkv_bias": 0}, ["qkv_bias", "bool", "0"]),
    ({"qkv_bias": (True, 0, True)}, ["qkv_bias", "one each for query, key and value"]),
    ({"num_registers": -1}, ["num_registers", "int from 0", "-1"]),
    ({"mlp": "swiglu"}, ["mlp='swiglu'", "plain, gated"]),
    ({"norm": "rmsnorm"}, ["norm='rmsnorm'", "layer, rms"]),
    ({"layer_scale_init": "small"}, ["layer_scale_init", "number", "'small'"]),
    ({"pooling": "gap", "distillation_token": True}, ["distillation_token=True", "class token"]),
    ({"projection_dim": 4, "representation_size": 4}, ["projection_dim=4", "exclude each other"]),
    ({"pooling": "map", "map_num_heads": 3}, ["hidden_size=16", "map_num_heads=3"]),
    ({"rope": "axial"}, ["rope", "Rope", "'axial'"]),
    ({"rope": {"form": "dino"}}, ["rope.form='dino'", "dinov3, axial, mixed", "mean 'dinov3'"]),
    ({"rope": {"indexing": "yx"}}, ["rope.indexing='yx'", "ij, xy"]),
    ({"rope": {"theta": 0}}, ["rope.theta", "positive number", "0"]),
    ({"rope": {"offset": None}}, ["rope.offset", "a number", "None"]),
    ({"rope": {"reference_grid": 0}}, ["rope.reference_grid", "pair", "0"]),
    ({"rope": {"temperature": 100}}, ["Unknown field rope.temperature", "theta"]),
    ({"rope": {}, "num_heads": 8}, ["rope", "multiple of 4", "is 2"]),
    (
        {"pooling": "gap", "final_norm": False, "numerics": {"pool_before_norm": True}},
        ["pool_before_norm=True", "final_norm=True"],
    ),
    ({"numerics": {"gate": "relu"}}, ["numerics.gate='relu'", "silu, gelu"]),
    ({"class_token": False}, ["pooling='token'", "class_token=True or None"]),
    ({"class_token": "yes"}, ["class_token", "bool or None", "'yes'"]),
    (
        {"pooling": "gap", "class_token_in_mean": True},
        ["class_token_in_mean=True", "a class token"],
    ),
    ({"class_token_in_mean": True}, ["class_token_in_mean=True", "pooling='gap'"]),
    ({"class_token_blocks": 2}, ["class_token_blocks=2", "'token_and_mean'", "found", "'token'"]),
    (
        {"pooling": "token_and_mean", "class_token_blocks": 3},
        ["class_token_blocks=3", "as many blocks", "and 2 blocks"],
    ),
    ({"class_token_blocks": 0}, ["class_token_blocks", "0"]),
    ({"numerics": {"pool_before_norm": True}}, ["pool_before_norm=True", "pooling='gap'"]),
    ({"numerics": {"pool_before_norm": 1}}, ["numerics.pool_before_norm", "bool", "1"]),
    ({"image_size": 0}, ["image_size", "positive int or a pair", "0"]),
    ({"image_size": (32, 32, 3)}, ["image_size", "pair", "(32, 32, 3)"]),
    ({"image_size": "32"}, ["image_size", "pair", "'32'"]),
    ({"image_size": np.array([32, 32])}, ["image_size", "pair", "array([32, 32])"]),
    ({"patch_size": (8, 0)}, ["patch_size", "pair", "(8, 0)"]),
    ({"patch_size": None}, ["patch_size", "pair", "None"]),
    ({"position_grid": (2,)}, ["position_grid", "pair", "(2,)"]),
    ({"patch_size": 33}, ["patch_size=(33, 33)", "larger", "(32, 32)"]),
    ({"patch_size": (8, 33)}, ["patch_size=(8, 33)", "larger", "(32, 32)"]),
    ({"image_size": None, "patch_size": 225}, ["patch_size=(225, 225)", "larger", "(224, 224)"]),
    ({**R50, "patch_size": 3}, ["patch_size=(3, 3)", "behind the stem", "larger"]),
    ({"resnet": "r50"}, ["resnet", "ResNetStem", "'r50'"]),
    ({"resnet": {"layers": (1,)}}, ["Unknown field resnet.layers", "mean 'num_layers'"]),
    ({"resnet": {"num_layers": 3}}, ["resnet.num_layers", "(3, 4, 9)", "3"]),
    ({"resnet": {"num_layers": (3, 0)}}, ["resnet.num_layers", "positive int", "0"]),
    ({"resnet": {"width_factor": 0}}, ["resnet.width_factor", "positive number", "0"]),
    ({"resnet": {"width_factor": 0.7}}, ["resnet.width_factor=0.7", "44", "32", "multiple of 0.5"]),
    ({"numerics": None}, ["numerics", "Numerics", "None"]),
    ({"numerics": {"gelu": "tan"}}, ["numerics.gelu='tan'", "tanh, exact", "mean 'tanh'"]),
    ({"numerics": {"std_conv": "std"}}, ["numerics.std_conv='std'", "std_plus_epsilon"]),
    ({"numerics": {"position_resize": "nearest"}}, ["numerics.position_resize='nearest'"]),
    ({"numerics": {"layer_norm_epsilon": -1e-6}}, ["numerics.layer_norm_epsilon", "-1e-06"]),
    (
        {"numerics": {"layernorm_epsilon": 0}},
        ["numerics.layernorm_epsilon", "'layer_norm_epsilon'"],
    ),
]


@pytest.mark.parametrize(("fields", "words"), WRONG, ids=[str(fields) for fields, _ in WRONG])
def test_an_invalid_field_is_refused(fields, words):
    """The message names the field, the value found, the values expected, and the nearest name."""
    with raises(ConfigError, *words):
        config(**fields)


def test_an_unknown_field_is_refused_with_the_nearest_name():
    """By `from_dict` and by `replace`. Code without keras_vit can catch the ValueError."""
    assert issubclass(ConfigError, KerasViTError)
    assert issubclass(KerasViTError, ValueError)
    with raises(ConfigError, "Unknown field num_classe.", "mean 'num_classes'", "patch_size"):
        ViTConfig.from_dict({**SIZES, "num_classe": 10})
    with raises(ConfigError, "Unknown field dropout.", "mean 'dropout_rate'"):
        config().replace(dropout=0.1)


def test_one_message_names_all_missing_fields():
    """By `from_dict`."""
    with raises(ConfigError, "needs hidden_size, mlp_dim, num_heads, num_layers"):
        ViTConfig.from_dict({"patch_size": 16})


def test_replace_changes_a_field_and_validates_the_result():
    """The other fields stay."""
    changed = config(num_classes=3).replace(image_size=(16, 24))
    assert changed == config(num_classes=3, image_size=(16, 24))
    with raises(ConfigError, "num_heads=5"):
        config().replace(num_heads=5)


FACTS = [
    # fields, image size, feature map, grid, remainder
    ({}, (32, 32), (32, 32), (4, 4), (0, 0)),
    ({}, (35, 8), (35, 8), (4, 1), (3, 0)),
    ({"patch_size": (4, 16)}, (37, 33), (37, 33), (9, 2), (1, 1)),
    ({"resnet": ResNetStem()}, (224, 224), (56, 56), (7, 7), (0, 0)),
    ({"resnet": ResNetStem()}, (225, 250), (57, 63), (7, 7), (1, 7)),
    (R50, (224, 224), (14, 14), (14, 14), (0, 0)),
    (R50, (45, 33), (3, 3), (3, 3), (0, 0)),
    (R50, (1, 17), (1, 2), (1, 2), (0, 0)),
    ({"resnet": ResNetStem((2, 2, 2, 2)), "patch_size": 2}, (97, 64), (4, 2), (2, 1), (0, 0)),
    ({"resnet": ResNetStem((2, 2, 2, 2)), "patch_size": 2}, (64, 65), (2, 3), (1, 1), (0, 1)),
]


@pytest.mark.parametrize(("fields", "size", "feature_map", "grid", "rest"), FACTS)
def test_feature_map_grid_and_remainder_follow_from_the_image_size(
    fields, size, feature_map, grid, rest
):
    """Of plain and hybrid models, at even and odd sizes."""
    made = config(**{"image_size": None, **fields})
    assert made.compute_feature_map(size) == feature_map
    assert made.compute_grid(size) == grid
    assert made.compute_remainder(size) == rest


def test_an_any_size_config_starts_at_the_grid_of_224_pixels():
    """Its grid and number of tokens are None; `position_grid` sets another source grid."""
    made = config(image_size=None)
    assert (made.grid, made.num_tokens) == (None, None)
    assert (made.source_grid, made.num_positions) == ((28, 28), 28 * 28 + 1)
    assert config(image_size=None, position_grid=(2, 3)).source_grid == (2, 3)


def test_a_position_grid_may_differ_from_the_grid_of_the_image():
    """The number of tokens follows the image, the number of positions follows the grid."""
    made = config(image_size=(32, 16), position_grid=(3, 3))
    assert (made.grid, made.num_tokens) == ((4, 2), 9)
    assert (made.source_grid, made.num_positions) == ((3, 3), 10)


@pytest.mark.parametrize(
    ("fields", "prefix", "positions"),
    [
        ({"pooling": "token"}, 1, 1),
        ({"pooling": "token", "position_before_class": True}, 1, 0),
        ({"pooling": "token_unpooled"}, 1, 1),
        ({"pooling": "token_unpooled", "position_before_class": True}, 1, 0),
        ({"pooling": "gap"}, 0, 0),
        ({"pooling": "map"}, 0, 0),
        ({"pooling": "unpooled"}, 0, 0),
        ({"pooling": "gap", "class_token": True}, 1, 1),
        ({"pooling": "map", "class_token": True, "position_before_class": True}, 1, 0),
        ({"pooling": "unpooled", "class_token": False}, 0, 0),
        ({"num_registers": 4}, 5, 5),
        ({"num_registers": 4, "position_before_registers": True}, 5, 1),
        ({"num_registers": 4, "position_before_class": True}, 5, 0),
        ({"pooling": "gap", "num_registers": 4}, 4, 4),
        ({"pooling": "gap", "num_registers": 4, "position_before_class": True}, 4, 0),
        ({"pooling": "token_and_distillation"}, 2, 2),
        ({"distillation_token": True, "position_before_class": True}, 2, 0),
        ({"num_registers": 2, "distillation_token": True}, 4, 4),
    ],
    ids=str,
)
def test_tokens_before_the_patches_and_their_positions(fields, prefix, positions):
    """Class token, distillation token and registers; some are inserted after the positions."""
    made = config(**fields)
    assert (made.num_prefix_tokens, made.num_tokens) == (prefix, 16 + prefix)
    assert (made.num_prefix_positions, made.num_positions) == (positions, 16 + positions)
    if not made.num_registers:
        assert made.has_class_token == (prefix > 0)
        assert made.has_class_position == (positions > 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"qkv_bias": (True, True, True)}, {}),
        ({"mlp": "gated_packed"}, {"mlp": "gated"}),
        ({"qkv_bias": [False, False, False]}, {"qkv_bias": False}),
        ({"position_before_registers": True}, {}),
        ({"position": "none", "position_before_class": True}, {"position": "none"}),
        ({"position": "none", "position_grid": 3}, {"position": "none"}),
        ({"num_registers": 1, "position_before_class": True, "position_before_registers": True},
         {"num_registers": 1, "position_before_class": True}),
        ({"pooling": "gap", "num_registers": 1, "position_before_class": True},
         {"pooling": "gap", "num_registers": 1, "position_before_registers": True}),
        ({"map_num_heads": 4, "map_mlp_dim": 9, "prefix_in_map": False}, {}),
        ({"pooling": "map", "map_num_heads": 2, "prefix_in_map": False}, {"pooling": "map"}),
        ({"pooling": "token_and_distillation", "distillation_token": True},
         {"pooling": "token_and_distillation"}),
    ],
    ids=str,
)  # fmt: skip
def test_configurations_of_one_network_are_equal(one, other):
    """Fields without effect, given the other fields, are normalised."""
    assert config(**one) == config(**other)


def test_a_triple_chooses_the_biases_of_query_key_and_value():
    """`biased_projections` names the projections with a bias."""
    assert config().biased_projections == ("query", "key", "value")
    assert config(qkv_bias=False).biased_projections == ()
    assert config(qkv_bias=(True, False, True)).biased_projections == ("query", "value")


def test_the_stride_in_pixels_includes_the_stem():
    """The stride is the number of pixels per patch."""
    assert config(patch_size=(8, 4)).stride == (8, 4)
    assert config(**R50).stride == (16, 16)
    assert config(resnet={}, patch_size=8).stride == (32, 32)


@pytest.mark.parametrize(
    ("stem", "width", "out_channels"),
    [((), 64, 64), ((3, 4, 9), 64, 1024), ((2, 2, 2, 2), 64, 2048)],
)
def test_the_stem_has_the_channels_of_a_resnet(stem, width, out_channels):
    """Each stage doubles, each unit widens its bottleneck four times; a root alone has 64."""
    assert (ResNetStem(stem).width, ResNetStem(stem).out_channels) == (width, out_channels)
    assert ResNetStem(stem, width_factor=0.5).out_channels == out_channels // 2


SWITCHES = [
    field.name for field in dataclasses.fields(ViTConfig) if isinstance(field.default, bool)
]
NUMBERS, SHARES = st.integers(1, 9), st.floats(0, 0.99)
FREE = {
    **dict.fromkeys(
        set(SWITCHES) - {"native_aspect", "class_token_in_mean", "distillation_token"},
        st.booleans(),
    ),
    **dict.fromkeys(("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"), SHARES),
    **dict.fromkeys(("channels", "num_classes", "num_layers", "num_registers", "mlp_dim"), NUMBERS),
    "map_mlp_dim": st.none() | NUMBERS,
    "rope": st.none() | st.builds(Rope, st.sampled_from(ROPE_FORMS), st.floats(1, 2)),
    "mlp": st.sampled_from(MLPS),
    "norm": st.sampled_from(NORMS),
    "qkv_bias": st.booleans() | st.tuples(st.booleans(), st.booleans(), st.booleans()),
    "head_bias_init": st.floats(-20, 20),
    "numerics": st.builds(
        Numerics,
        gelu=st.sampled_from(GELU_FORMS),
        layer_norm_epsilon=SHARES,
        std_conv=st.sampled_from(STD_CONV_FORMS),
        position_resize=st.sampled_from(POSITION_RESIZES),
    ),
}
"""Fields that go with all others."""
KINDS = (
    *({"pooling": classifier} for classifier in POOLINGS + FAMILY_POOLINGS),
    {"pooling": "gap", "class_token": True, "class_token_in_mean": True},
    {"pooling": "map", "class_token": True, "distillation_token": True},
    {"pooling": "gap", "final_norm": True, "numerics": Numerics(pool_before_norm=True)},
    {"position": "sincos2d", "representation_size": 5, "classifier_activation": "softmax"},
    {"image_size": None, "position_grid": (2, 3), "projection_dim": 5},
    {"image_size": (45, 33), **R50},
    {"native_aspect": True, "rope": None, "position": "none"},
    {"pooling": "token_and_mean", "num_layers": 4, "class_token_blocks": 4},
)
"""Fields of which some exclude others."""


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.fixed_dictionaries({}, optional=FREE), st.sampled_from(KINDS))
def test_to_dict_and_from_dict_are_inverse_through_json(free, kind):
    """All values come back from JSON with their types."""
    numbers = {"task": "single_label", "num_classes": 3} if "classifier_activation" in kind else {}
    made = config(**{**free, **kind, **numbers})
    revived = ViTConfig.from_dict(through_json(made.to_dict()))
    assert revived == made
    assert revived.to_dict() == made.to_dict() == through_json(made.to_dict())
    assert hash(revived) == hash(made)


def test_sigmoids_of_several_classes_are_multi_label():
    """A model without a head has no task; softmax of one logit would be 1 for every image."""
    assert config(classifier_activation="sigmoid").task == "multi_label"
    assert config(classifier_activation="sigmoid", num_classes=0).task == "single_label"
    assert config(num_classes=1, task="regression").task == "regression"
    excluded = ("multi_label", "softmax", 3), ("regression", "sigmoid", 3)
    for task, activation, classes in (*excluded, ("single_label", "softmax", 1)):
        words = f"task='{task}' with num_classes={classes} excludes .*'{activation}'"
        with pytest.raises(ConfigError, match=words):
            config(task=task, classifier_activation=activation, num_classes=classes)


def test_one_logit_is_two_classes_unless_the_task_says_otherwise():
    """With a sigmoid in the graph too."""
    answers = {"single_label": 2, "multi_label": 1, "regression": 1}
    for task, count in answers.items():
        assert config(num_classes=1, task=task).num_answers == count
    assert config(num_classes=1, classifier_activation="sigmoid").is_binary
    assert (config(num_classes=3).num_answers, config(num_classes=0).num_answers) == (3, 0)


def test_has_one_prediction_is_true_for_pooled_classifiers_alone():
    """A model without a head, or with one prediction per token, has not."""
    assert config(pooling="token").has_one_prediction
    assert config(pooling="map").has_one_prediction
    assert not config(num_classes=0).has_one_prediction
    for classifier in ("unpooled", "token_unpooled"):
        assert not config(pooling=classifier).is_pooled
        assert not config(pooling=classifier).has_one_prediction


@pytest.mark.parametrize(
    "fields",
    [
        {"num_layers": 10**6},
        {"num_layers": 10**5000},
        {"hidden_size": -(10**5000)},
        {"hidden_size": 10**5000 + 1},
        {"resnet": {"num_layers": [10**8]}},
        {"resnet": {"num_layers": [1] * 10**6}},
        {"resnet": {"num_layers": [10**5000]}},
        {"resnet": {"width_factor": 10**5000}},
        {"pooling": "x" * 10**6},
        {"x" * 10**6: 1},
        {"image_size": [10**5000]},
        {"head_bias_init": 10**5000},
    ],
    ids=lambda fields: next(iter(fields))[:20],
)
def test_a_refusal_of_huge_values_is_short(fields):
    """Numbers of thousands of digits and lists of a million items are abbreviated."""
    with pytest.raises(ConfigError) as caught:
        ViTConfig.from_dict({**SIZES, "image_size": 32, **fields})
    assert len(str(caught.value)) < 1000
