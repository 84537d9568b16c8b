"""`ViTConfig` and its parts: fields accepted and refused, derived sizes, and the round trip."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.config import Block, LearnedTokens, Pool, Rope, Stem, ViTConfig
from keras_vit.config.fields import flatten, nest
from keras_vit.config.pool import POOLINGS
from keras_vit.config.vit import POSITION_RESIZES, SWITCHES
from keras_vit.config.weights.conditions import Place
from keras_vit.errors import ConfigError, KerasViTError
from tests.plain import raises, through_json

pytestmark = pytest.mark.without_backend

SIZES = {"patch_size": 8, "hidden_size": 16, "mlp_dim": 32, "num_heads": 2, "num_layers": 2}
R50 = {"stem": {"kind": "resnet", "units": (3, 4, 9)}, "patch_size": 1}
ROOT = {"stem": {"kind": "resnet"}}
DEEP = {"stem": {"kind": "resnet_timm", "units": (2, 2, 2, 2)}, "patch_size": 2}


def config(**fields):
    """A small valid configuration for 32-pixel images; `fields` override."""
    return ViTConfig(**{**SIZES, "image_size": 32, **fields})


def test_ints_become_pairs_and_dicts_the_parts_that_they_describe():
    """Equal sizes give equal configurations with one hash; ints become floats."""
    made = config(image_size=32, patch_size=8, position_grid=3)
    assert (made.image_size, made.patch_size, made.position_grid) == ((32, 32), (8, 8), (3, 3))
    assert config(image_size=32, patch_size=8) == config(image_size=[32, 32], patch_size=(8, 8))
    assert len({config(), config(), config(num_classes=2)}) == 2
    made = config(
        stem={"kind": "resnet", "units": [1, 2]}, patch_size=1, block={"layer_scale": 1}, rope={}
    )
    assert made.stem == Stem("resnet", (1, 2))
    assert (made.block, made.rope) == (Block(layer_scale=1.0), Rope())
    assert type(made.block.layer_scale) is float


WRONG = [
    ({"hidden_size": 0}, ["hidden_size", "positive int", "0"]),
    ({"hidden_size": 16.0}, ["hidden_size", "positive int", "16.0"]),
    ({"num_heads": True}, ["num_heads", "positive int", "True"]),
    ({"num_layers": "12"}, ["num_layers", "positive int", "'12'"]),
    ({"num_classes": -1}, ["num_classes", "int", "0 for features", "-1"]),
    ({"num_heads": 3}, ["hidden_size=16", "not divisible", "num_heads=3"]),
    ({"position": "sincos"}, ["position='sincos'", "learned", "mean 'sincos2d'"]),
    ({"position": "sincos2d", "hidden_size": 18}, ["sincos2d", "multiple of 4", "18"]),
    ({"position": "sincos2d", "hidden_size": 4}, ["sincos2d", "at least 8", "4"]),
    ({"position_resize": "nearest"}, ["position_resize='nearest'", "bilinear_align_corners"]),
    ({"dropout_rate": 1.0}, ["dropout_rate", "[0, 1)", "1.0"]),
    ({"attention_dropout_rate": -0.1}, ["attention_dropout_rate", "[0, 1)", "-0.1"]),
    ({"stochastic_depth_rate": "a"}, ["stochastic_depth_rate", "[0, 1)", "'a'"]),
    ({"dropout_rate": float("nan")}, ["dropout_rate", "[0, 1)", "nan"]),
    ({"head": "cosin"}, ["head='cosin'", "linear, cosine", "mean 'cosine'"]),
    ({"projection_size": 4, "representation_size": 4}, ["projection_size=4", "exclude each other"]),
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
    ({**R50, "patch_size": 3}, ["patch_size=(3, 3)", "after the stem", "larger"]),
    # the block
    ({"block": None}, ["block must be a Block or a dict", "None"]),
    ({"block": {"norm": "rmsnorm"}}, ["block.norm='rmsnorm'", "layer, rms"]),
    ({"block": {"epsilon": -1e-6}}, ["block.epsilon", "[0, 1)", "-1e-06"]),
    ({"block": {"activation": "gelu_tan"}}, ["block.activation=", "mean 'gelu_tanh'"]),
    ({"block": {"gated": 1}}, ["block.gated", "bool", "1"]),
    ({"block": {"qkv_bias": 0}}, ["block.qkv_bias", "bool", "0"]),
    ({"block": {"qkv_bias": (True, 0, True)}}, ["block.qkv_bias", "one each for query, key"]),
    ({"block": {"qkv_bias": [True] * 3}}, ["block.qkv_bias", "if they differ", "True"]),
    ({"block": {"layer_scale": "small"}}, ["block.layer_scale", "number or None", "'small'"]),
    ({"block": {"sub_norm": True}}, ["block.sub_norm=True", "mlp, attention, both, None"]),
    ({"block": {"layernorm": 0}}, ["Unknown field block.layernorm.", "mean 'norm'"]),
    # the tokens
    ({"tokens": {"registers": -1}}, ["tokens.registers", "int from 0", "-1"]),
    ({"tokens": {"class_tokens": True}}, ["tokens.class_tokens", "int from 0", "True"]),
    (
        {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0, "distillation": True}},
        ["tokens.distillation=True", "one class token"],
    ),
    # rotary positions
    ({"rope": "axial"}, ["rope", "Rope", "'axial'"]),
    ({"rope": {"form": "dino"}}, ["rope.form='dino'", "dinov3, axial", "mean 'dinov3'"]),
    ({"rope": {"theta": 0}}, ["rope.theta", "positive number", "0"]),
    ({"rope": {"reference_grid": 0}}, ["rope.reference_grid", "pair", "0"]),
    ({"rope": {"temperature": 100}}, ["Unknown field rope.temperature", "theta"]),
    ({"rope": {}, "num_heads": 8}, ["rope", "multiple of 4", "is 2"]),
    # the stem
    ({"stem": "r50"}, ["stem", "Stem", "'r50'"]),
    ({"stem": {"kind": "resnets"}}, ["stem.kind='resnets'", "none, resnet", "mean 'resnet'"]),
    ({"stem": {"layers": (1,)}}, ["Unknown field stem.layers", "units"]),
    ({"stem": {"kind": "resnet", "units": 3}}, ["stem.units", "(3, 4, 9)", "3"]),
    ({"stem": {"kind": "resnet", "units": (3, 0)}}, ["stem.units", "positive int", "0"]),
    ({"stem": {"kind": "resnet", "units": (1,) * 9}}, ["stem.units", "more than 8 stages"]),
    ({"stem": {"units": (3, 4)}}, ["stem.units", "those of a ResNet", "kind='none'"]),
    ({"stem": {"width_factor": 0}}, ["stem.width_factor", "positive number", "0"]),
    (
        {"stem": {"kind": "resnet", "width_factor": 0.7}},
        ["stem.width_factor=0.7", "44", "32", "multiple of 0.5"],
    ),
    ({"stem": {"kind": "packed"}, "rope": {}}, ["stem.kind='packed'", "it excludes rope"]),
    # the pooling
    ({"pool": {"kind": "tokne"}}, ["pool.kind='tokne'", "token, tokens, gap", "mean 'token'"]),
    ({"pool": {"kind": None}}, ["pool.kind=None", "token, tokens, gap"]),
    ({"tokens": {"class_tokens": 0}}, ["pool.kind='token'", "tokens.class_tokens=0"]),
    ({"pool": {"kind": "token_and_distillation"}}, ["needs tokens.distillation=True"]),
    ({"pool": {"norm": "after"}}, ["pool.norm='after'", "'gap' or 'mean'", "found 'token'"]),
    ({"pool": {"mlp_dim": 4}}, ["pool.mlp_dim", "those of 'map'", "found 'token'"]),
    ({"pool": {"kind": "map", "num_heads": 3}}, ["hidden_size=16", "pool.num_heads=3"]),
    ({"pool": {"blocks": 0}}, ["pool.blocks", "0"]),
    ({"pool": {"blocks": 2}}, ["pool.blocks=2", "'token_and_mean'", "found", "'token'"]),
    (
        {"pool": {"kind": "token_and_mean", "blocks": 3}},
        ["pool.blocks=3", "as many blocks", "and 2 blocks"],
    ),
    (
        {"pool": {"kind": "token_and_mean"}, "projection_size": 3},
        ["pool.kind='token_and_mean'", "neither representation_size nor projection_size"],
    ),
]


@pytest.mark.parametrize(("fields", "words"), WRONG, ids=[str(fields) for fields, _ in WRONG])
def test_an_invalid_field_is_refused(fields, words):
    """The message names the field, the value found, the values expected, and the nearest name."""
    with raises(ConfigError, *words):
        config(**fields)


def test_an_unknown_field_is_refused_with_the_nearest_name():
    """Or with its part, by `from_dict` and by `replace`; the error is a ValueError."""
    assert issubclass(ConfigError, KerasViTError)
    assert issubclass(KerasViTError, ValueError)
    with raises(ConfigError, "Unknown field num_classe.", "mean 'num_classes'", "patch_size"):
        ViTConfig.from_dict({**SIZES, "num_classe": 10})
    with raises(ConfigError, "Unknown field dropout.", "mean 'dropout_rate'"):
        config().replace(dropout=0.1)
    with raises(ConfigError, "Unknown field gated. Give block={'gated': ...}."):
        config().replace(gated=True)
    with raises(ConfigError, "Give block={'norm': ...} or pool={'norm': ...}."):
        config().replace(norm="rms")
    with raises(ConfigError, "task is an argument of VisionTransformer"):
        config().replace(task="regression")
    with raises(ConfigError, "Unknown field block.gate.", "mean 'gated'"):
        config().replace(block={"gate": True})


def test_one_message_names_all_missing_fields():
    """By `from_dict`."""
    with raises(ConfigError, "needs hidden_size, mlp_dim, num_heads, num_layers"):
        ViTConfig.from_dict({"patch_size": 16})


def test_replace_changes_a_field_and_validates_the_result():
    """A dict changes fields of a part, a part replaces it; other fields stay."""
    changed = config(num_classes=3).replace(image_size=(16, 24))
    assert changed == config(num_classes=3, image_size=(16, 24))
    gated = config(block={"gated": True})
    scaled = gated.replace(block={"layer_scale": 1e-5})
    assert scaled.block == Block(gated=True, layer_scale=1e-5)
    assert gated.replace(block=Block(norm="rms")).block == Block(norm="rms")
    assert gated.replace(rope={"theta": 100}).replace(rope=None) == gated
    with raises(ConfigError, "num_heads=5"):
        config().replace(num_heads=5)


FACTS = [
    # fields, image size, feature map, grid, remainder
    ({}, (32, 32), (32, 32), (4, 4), (0, 0)),
    ({}, (35, 8), (35, 8), (4, 1), (3, 0)),
    ({"patch_size": (4, 16)}, (37, 33), (37, 33), (9, 2), (1, 1)),
    (ROOT, (224, 224), (56, 56), (7, 7), (0, 0)),
    (ROOT, (225, 250), (57, 63), (7, 7), (1, 7)),
    (R50, (224, 224), (14, 14), (14, 14), (0, 0)),
    (R50, (45, 33), (3, 3), (3, 3), (0, 0)),
    (R50, (1, 17), (1, 2), (1, 2), (0, 0)),
    (DEEP, (97, 64), (4, 2), (2, 1), (0, 0)),
    (DEEP, (64, 65), (2, 3), (1, 1), (0, 1)),
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
    ("class_tokens", "distillation", "registers", "position", "prefix", "positions"),
    [
        (1, False, 0, "learned", 1, 1),
        (1, False, 0, "learned_patches", 1, 0),
        (0, False, 0, "learned", 0, 0),
        (3, False, 0, "learned", 3, 3),
        (1, False, 4, "learned", 5, 5),
        (1, False, 4, "learned_except_registers", 5, 1),
        (1, False, 4, "learned_patches", 5, 0),
        (0, False, 4, "learned", 4, 4),
        (0, False, 4, "learned_patches", 4, 0),
        (1, True, 2, "learned", 4, 4),
        (1, True, 2, "learned_except_registers", 4, 2),
        (1, True, 0, "learned_patches", 2, 0),
    ],
)
def test_tokens_before_the_patches_and_their_positions(
    class_tokens, distillation, registers, position, prefix, positions
):
    """Class tokens, distillation token and registers; some are inserted after the positions."""
    tokens = LearnedTokens(class_tokens, distillation, registers)
    made = config(tokens=tokens, pool={"kind": "gap"}, position=position)
    assert (made.num_prefix_tokens, made.num_tokens) == (prefix, 16 + prefix)
    assert (made.num_prefix_positions, made.num_positions) == (positions, 16 + positions)


NO_TOKENS = {"tokens": {"class_tokens": 0}, "pool": {"kind": "gap"}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({**NO_TOKENS, "position": "learned_patches"}, NO_TOKENS),
        ({**NO_TOKENS, "position": "learned_except_registers"}, NO_TOKENS),
        ({"position": "learned_except_registers"}, {}),
        (
            {"tokens": {"class_tokens": 0, "registers": 1}, "pool": {"kind": "gap"},
             "position": "learned_except_registers"},
            {"tokens": {"class_tokens": 0, "registers": 1}, "pool": {"kind": "gap"},
             "position": "learned_patches"},
        ),
        ({**NO_TOKENS, "pool": {"kind": "mean"}}, NO_TOKENS),
        ({**NO_TOKENS, "pool": {"kind": "map_of_patches"}}, {**NO_TOKENS, "pool": {"kind": "map"}}),
    ],
    ids=str,
)  # fmt: skip
def test_words_that_tell_patches_from_missing_tokens_become_plain(one, other):
    """Two configurations of one network are equal."""
    assert config(**one) == config(**other)


def test_a_model_without_positions_has_no_grid_of_them():
    """A grid that is given is left out."""
    assert config(position="none", position_grid=3) == config(position="none")


def test_sizes_of_attention_pooling_that_are_those_of_the_blocks_are_left_out():
    """Other sizes stay."""
    stated = {"kind": "map", "num_heads": 2, "mlp_dim": 32}
    assert config(pool=stated).pool == Pool("map")
    assert config(pool=stated, num_heads=4).pool == Pool("map", num_heads=2)


def test_a_triple_chooses_the_biases_of_query_key_and_value():
    """`biased_projections` names the projections with a bias."""
    assert Block().biased_projections == ("query", "key", "value")
    assert Block(qkv_bias=False).biased_projections == ()
    assert Block(qkv_bias=(True, False, True)).biased_projections == ("query", "value")


def test_the_pooled_vector_is_as_wide_as_the_tokens_that_it_joins():
    """Class tokens that are averaged count once."""
    widths = {"token": 16, "tokens": 48, "token_and_mean": 32, "map": 16, "gap": 16}
    for kind, width in widths.items():
        assert config(pool={"kind": kind}, tokens={"class_tokens": 3}).pooled_size == width
    assert config(pool={"kind": "token_and_mean", "blocks": 2}).pooled_size == 48


def test_the_stride_in_pixels_includes_the_stem():
    """The stride is the number of pixels per patch."""
    assert config(patch_size=(8, 4)).stride == (8, 4)
    assert config(**R50).stride == (16, 16)
    assert config(**ROOT).stride == (32, 32)


@pytest.mark.parametrize(
    ("units", "width", "out_channels"),
    [((), 64, 64), ((3, 4, 9), 64, 1024), ((2, 2, 2, 2), 64, 2048)],
)
def test_the_stem_has_the_channels_of_a_resnet(units, width, out_channels):
    """Each stage doubles, each unit widens its bottleneck four times; a root alone has 64."""
    assert (Stem("resnet", units).width, Stem("resnet", units).out_channels) == (
        width,
        out_channels,
    )
    assert Stem("resnet", units, width_factor=0.5).out_channels == out_channels // 2


def drawn(cls, *names):
    """Draws a dict of some of these fields of a part, by their types and words."""
    types = {
        bool: st.booleans(),
        int: st.integers(1, 9),
        int | None: st.none() | st.integers(1, 9),
        float: st.floats(0.1, 0.9),
        float | None: st.none() | st.floats(0, 1),
        tuple[int, int] | None: st.none() | st.tuples(st.integers(1, 9), st.integers(1, 9)),
        bool | tuple[bool, bool, bool]: st.sampled_from((True, False, (True, False, True))),
    }
    optional = {}
    for own in dataclasses.fields(cls):
        if own.name in (names or (own.name,)):
            values = own.metadata.get("values")
            words = st.sampled_from(values.words) if values and values.words else types[own.type]
            optional[own.name] = words | st.none() if own.default is None else words
    return st.fixed_dictionaries({}, optional=optional)


FREE = {
    **dict.fromkeys(("dropout_rate", "attention_dropout_rate"), st.floats(0, 0.99)),
    **dict.fromkeys(("channels", "num_classes", "mlp_dim"), st.integers(1, 9)),
    "block": drawn(Block),
    "rope": st.none() | drawn(Rope),
    "tokens": drawn(LearnedTokens, "registers", "mask"),
    "patch_bias": st.booleans(),
    "position_resize": st.sampled_from(POSITION_RESIZES),
    "head": st.sampled_from(("linear", "cosine")),
}
"""Fields that go with all others."""
KINDS = (
    *({"pool": {"kind": kind}} for kind in POOLINGS if kind != "token_and_distillation"),
    {"pool": {"kind": "token_and_distillation"}, "tokens": {"distillation": True}},
    {"pool": {"kind": "gap", "norm": "after"}, **NO_TOKENS},
    {"position": "sincos2d", "representation_size": 5, "pool": {"norm": "none"}},
    {"image_size": None, "position_grid": (2, 3), "projection_size": 5},
    {"image_size": (45, 33), **R50},
    {"stem": {"kind": "packed"}, "rope": None, "position_resize": "bicubic"},
    {"pool": {"kind": "token_and_mean", "blocks": 4}, "num_layers": 4},
)
"""Fields of which some exclude others."""
configurations = given(st.fixed_dictionaries({}, optional=FREE), st.sampled_from(KINDS))


@settings(derandomize=True, max_examples=100, deadline=None)
@configurations
def test_to_dict_and_from_dict_are_inverse_through_json(free, kind):
    """All values come back from JSON with their types, and from flat paths."""
    made = config(**{**free, **kind})
    stated = made.to_dict()
    revived = ViTConfig.from_dict(through_json(stated))
    assert revived == made
    assert revived.to_dict() == stated == through_json(stated) == nest(flatten(stated))
    assert hash(revived) == hash(made)
    assert made.replace(**stated) == made.replace(**nest(flatten(kind))) == made


def test_all_parts_together_have_at_most_45_fields():
    """A field that holds a part does not count."""
    assert len(flatten(config(rope={}).to_dict())) <= 45


def test_the_model_of_the_paper_has_no_switch():
    """Each switch names a field whose default is a plain value."""
    for name, switch in SWITCHES.items():
        assert Place(switch.field).read(config()) in switch.plain, name


def test_has_one_prediction_is_true_for_pooled_classifiers_alone():
    """A model without a head, or with one prediction per token, has not."""
    assert config().has_one_prediction
    assert config(pool={"kind": "map"}).has_one_prediction
    assert not config(num_classes=0).has_one_prediction
    assert not config(pool={"kind": "unpooled"}).has_one_prediction


@pytest.mark.parametrize(
    "fields",
    [
        {"num_layers": 10**6},
        {"num_layers": 10**5000},
        {"hidden_size": -(10**5000)},
        {"hidden_size": 10**5000 + 1},
        {"stem": {"kind": "resnet", "units": [10**8]}},
        {"stem": {"kind": "resnet", "units": [1] * 10**6}},
        {"stem": {"kind": "resnet", "units": [10**5000]}},
        {"stem": {"kind": "resnet", "width_factor": 10**5000}},
        {"pool": {"kind": "x" * 10**6}},
        {"pool": {"kind": "token_and_mean", "blocks": 10**5000}},
        {"tokens": {"registers": 10**5000}},
        {"x" * 10**6: 1},
        {"image_size": [10**5000]},
        {"block": {"layer_scale": 10**5000}},
        {"block": "x" * 10**6},
    ],
    ids=lambda fields: next(iter(fields))[:20],
)
def test_a_refusal_of_huge_values_is_short(fields):
    """Numbers of thousands of digits and lists of a million items are abbreviated."""
    with pytest.raises(ConfigError) as caught:
        ViTConfig.from_dict({**SIZES, "image_size": 32, **fields})
    assert len(str(caught.value)) < 1000
