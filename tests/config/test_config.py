"""`ViTConfig` and its parts: fields accepted and refused, derived sizes, and the round trip."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.config import Block, LearnedTokens, Rope, Stem, ViTConfig
from keras_vit.config.fields import flatten, nest
from keras_vit.config.pool import POOLINGS
from keras_vit.config.vit import POSITION_RESIZES, SWITCHES
from keras_vit.config.weights.conditions import Place
from tests.plain import through_json

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


def test_replace_changes_a_field_and_validates_the_result():
    """A dict changes fields of a part, a part replaces it; other fields stay."""
    changed = config(num_classes=3).replace(image_size=(16, 24))
    assert changed == config(num_classes=3, image_size=(16, 24))
    gated = config(block={"gated": True})
    scaled = gated.replace(block={"layer_scale": 1e-5})
    assert scaled.block == Block(gated=True, layer_scale=1e-5)
    assert gated.replace(block=Block(norm="rms")).block == Block(norm="rms")
    assert gated.replace(rope={"theta": 100}).replace(rope=None) == gated


FACTS = [
    # fields, image size, feature map, grid, remainder
    ({}, (32, 32), (32, 32), (4, 4), (0, 0)),
    ({}, (35, 8), (35, 8), (4, 1), (3, 0)),
    ({"patch_size": (4, 16)}, (37, 33), (37, 33), (9, 2), (1, 1)),
    (ROOT, (224, 224), (56, 56), (7, 7), (0, 0)),
    (R50, (45, 33), (3, 3), (3, 3), (0, 0)),
    (R50, (1, 17), (1, 2), (1, 2), (0, 0)),
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


def test_positions_are_stored_for_a_grid_of_their_own():
    """Or for that of the image; an any-size model starts at 224 pixels."""
    made = config(image_size=None)
    assert (made.grid, made.num_tokens) == (None, None)
    assert (made.source_grid, made.num_positions) == ((28, 28), 28 * 28 + 1)
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
REGISTER = {"tokens": {"class_tokens": 0, "registers": 1}, "pool": {"kind": "gap"}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({**NO_TOKENS, "position": "learned_patches"}, NO_TOKENS),
        ({**NO_TOKENS, "position": "learned_except_registers"}, NO_TOKENS),
        ({"position": "learned_except_registers"}, {}),
        (
            {**REGISTER, "position": "learned_except_registers"},
            {**REGISTER, "position": "learned_patches"},
        ),
        ({**NO_TOKENS, "pool": {"kind": "mean"}}, NO_TOKENS),
        ({**NO_TOKENS, "pool": {"kind": "map_of_patches"}}, {**NO_TOKENS, "pool": {"kind": "map"}}),
        ({"pool": {"kind": "map", "num_heads": 2, "mlp_dim": 32}}, {"pool": {"kind": "map"}}),
        ({"position": "none", "position_grid": 3}, {"position": "none"}),
    ],
    ids=str,
)
def test_two_configurations_of_one_network_are_equal(one, other):
    """Words about tokens and positions that the model lacks become plain."""
    assert config(**one) == config(**other)


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


def test_the_stem_widens_channels_and_multiplies_the_stride():
    """Each stage halves the size and doubles the width, a unit widens it four times."""
    assert config(patch_size=(8, 4)).stride == (8, 4)
    for units, channels, stride in (((), 64, 4), ((3, 4, 9), 1024, 16), ((2, 2, 2, 2), 2048, 32)):
        stem = Stem("resnet", units, width_factor=0.5)
        assert stem.out_channels == channels // 2
        assert config(stem=stem, patch_size=1).stride == (stride, stride)


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
DPT = {"kind": "dpt", "stages": (0, 1, 2, 3)}
KINDS = (
    *({"pool": {"kind": kind}} for kind in POOLINGS if kind != "token_and_distillation"),
    {"pool": {"kind": "token_and_distillation"}, "tokens": {"distillation": True}},
    {"pool": {"kind": "gap", "norm": "after"}, **NO_TOKENS},
    {"position": "sincos2d", "representation_size": 5, "pool": {"norm": "none"}},
    {"image_size": None, "position_grid": (2, 3), "projection_size": 5},
    {"image_size": (45, 33), **R50},
    {"stem": {"kind": "packed"}, "rope": None, "position_resize": "bicubic"},
    {"pool": {"kind": "token_and_mean", "blocks": 4}, "num_layers": 4},
    {"dense": {"stages": (0, 1), "ignore_label": None}, "head": "linear", "num_classes": 3},
    {"dense": {**DPT, "readout": "add"}, "num_layers": 4, "head": "linear", "num_classes": 2},
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


def test_all_parts_but_a_dense_head_have_at_most_45_fields():
    """A field that holds a part does not count."""
    assert len(flatten(config(rope={}).to_dict()).keys() - {"dense"}) <= 45


def test_the_model_of_the_paper_has_no_switch():
    """Each switch names a field whose default is a plain value."""
    for name, switch in SWITCHES.items():
        assert Place(switch.field).read(config()) in switch.plain, name


def test_a_pooled_classifier_alone_has_one_prediction():
    made = [config(), config(num_classes=0), config(pool={"kind": "unpooled"})]
    assert [each.has_one_prediction for each in made] == [True, False, False]
