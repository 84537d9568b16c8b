"""Fields and combinations that `ViTConfig`, its parts and `Prediction` refuse."""

import dataclasses
import functools
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.config import Prediction, Rope, Stem, ViTConfig
from keras_vit.config.fields import nest
from keras_vit.config.pool import POOLINGS, TOKEN_POOLINGS
from keras_vit.config.views import Views
from keras_vit.config.vit import POSITION_RESIZES, POSITIONS
from keras_vit.config.weights.conditions import parse
from keras_vit.errors import ConfigError
from keras_vit.models.builders import variant
from tests.config.test_config import DPT, NO_TOKENS, R50, SIZES, config
from tests.runs import times

pytestmark = pytest.mark.without_backend

NAN, PAIR = float("nan"), "a pair"
FIELDS = (
    # what is wrong, and what the message says of it
    ({"hidden_size": 0}, "hidden_size must be a positive int, found 0"),
    ({"num_heads": True}, "found True"),
    ({"num_layers": 10**6}, "num_layers"),
    ({"num_classes": -1}, "0 for features"),
    ({"position": "sincos"}, "mean 'sincos2d'"),
    ({"position_resize": "nearest"}, "bilinear_align_corners"),
    ({"relative_position_bias": True}, "block, shared, None"),
    ({"dropout_rate": 1.0}, "[0, 1)"),
    ({"stochastic_depth_rate": "a"}, "[0, 1)"),
    ({"dropout_rate": NAN}, "nan"),
    ({"head": "cosin"}, "mean 'cosine'"),
    ({"image_size": 0}, PAIR),
    ({"image_size": np.array([32, 32])}, "array([32, 32])"),
    ({"patch_size": (8, 0)}, PAIR),
    ({"position_grid": (2,)}, PAIR),
    ({"patch_size": (8, 33)}, "patch_size=(8, 33) is larger than an image of (32, 32)"),
    ({"image_size": None, "patch_size": 225}, "larger than an image of (224, 224)"),
    ({**R50, "patch_size": 3}, "after the stem"),
    ({"block": None}, "a Block or a dict"),
    ({"block": {"norm": "rmsnorm"}}, "layer, rms"),
    ({"block": {"activation": "gelu_tan"}}, "mean 'gelu_tanh'"),
    ({"block": {"gated": 1}}, "bool"),
    ({"block": {"qkv_bias": 0}}, "block.qkv_bias"),
    ({"block": {"qkv_bias": (True, 0, True)}}, "one each for query, key"),
    ({"block": {"qkv_bias": [True] * 3}}, "if they differ"),
    ({"block": {"layer_scale": "small"}}, "a number or None"),
    ({"block": {"sub_norm": True}}, "mlp, attention, both, None"),
    ({"tokens": {"registers": -1}}, "from 0"),
    ({"tokens": {"class_tokens": True}}, "from 0"),
    ({"rope": "axial"}, "Rope"),
    ({"rope": {"form": "dino"}}, "mean 'dinov3'"),
    ({"rope": {"theta": 0}}, "a positive number"),
    ({"rope": {"reference_grid": 0}}, PAIR),
    ({"stem": {"kind": "resnets"}}, "mean 'resnet'"),
    ({"stem": {"kind": "resnet", "units": 3}}, "(3, 4, 9)"),
    ({"stem": {"kind": "resnet", "units": (3, 0)}}, "positive int"),
    ({"stem": {"kind": "resnet", "units": (1,) * 9}}, "more than 8 stages"),
    ({"stem": {"kind": "resnet", "units": [10**8]}}, "stem.units"),
    ({"stem": {"units": (3, 4)}}, "are for a ResNet"),
    ({"stem": {"width_factor": 0}}, "a positive number"),
    ({"stem": {"kind": "resnet", "width_factor": 0.7}}, "multiple of 0.5"),
    ({"pool": {"kind": "tokne"}}, "mean 'token'"),
    ({"pool": {"kind": None}}, "token, tokens, gap"),
    ({"pool": {"blocks": 0}}, "pool.blocks"),
    ({"dense": {"stages": (1, 0)}}, "increasing block numbers"),
    ({"dense": {"stages": (0,)}}, "must end with the last block, 1"),
    ({"dense": {"stages": (0, 1), "kind": "dpt"}}, "reads 4 blocks"),
    ({"dense": {**DPT, "readout": "add"}, "num_layers": 4, **NO_TOKENS}, "needs a class token"),
    ({"dense": {"stages": (1,)}, "num_classes": 1}, "needs 2 or more classes, found 1"),
    ({"dense": {"stages": (1,)}, "stem": {"kind": "packed"}}, "dense excludes"),
    ({"num_classe": 10}, "mean 'num_classes'"),
    ({"block": {"layernorm": 0}}, "Unknown field block.layernorm"),
    ({"rope": {"temperature": 100}}, "Unknown field rope.temperature"),
    ({"gated": True}, "Give block={'gated': ...}."),
    ({"norm": "rms"}, "Give block={'norm': ...} or pool={'norm': ...}."),
    ({"task": "regression"}, "task is an argument of VisionTransformer"),
)


def from_dict(fields):
    return ViTConfig.from_dict({**SIZES, "image_size": 32, **fields})


CONTRADICTIONS = {
    "not divisible by num_heads": ({"num_heads": 3}, lambda c: c.hidden_size % c.num_heads),
    "not divisible by pool.num_heads": (
        {"pool": {"kind": "map", "num_heads": 3}},
        lambda c: c.pool.num_heads and c.hidden_size % c.pool.num_heads,
    ),
    "position='sincos2d' needs a hidden_size": (
        {"position": "sincos2d", "hidden_size": 4},
        lambda c: c.position == "sincos2d" and c.hidden_size not in (8, 12, 16, 24),
    ),
    "tokens.distillation=True needs one class token": (
        {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0, "distillation": True}},
        lambda c: c.tokens.distillation and c.tokens.class_tokens != 1,
    ),
    "rope needs heads of a multiple of 4": (
        {"rope": {}, "num_heads": 8},
        lambda c: c.rope and c.hidden_size // c.num_heads not in (4, 8, 12, 16, 24),
    ),
    "stem.kind='packed' supports learned positions or none": (
        {"stem": {"kind": "packed"}, "rope": {}},
        lambda c: c.stem.kind == "packed" and (
            c.rope or c.relative_position_bias or c.position == "sincos2d"
            or c.position_resize == "bilinear_longer_side"),
    ),
    "needs a class token, found tokens.class_tokens=0": (
        {"tokens": {"class_tokens": 0}},
        lambda c: c.pool.kind in TOKEN_POOLINGS and c.tokens.class_tokens == 0,
    ),
    "'token_and_distillation' needs tokens.distillation=True": (
        {"pool": {"kind": "token_and_distillation"}},
        lambda c: c.pool.kind == "token_and_distillation" and not c.tokens.distillation,
    ),
    "pool.norm='after' needs pool.kind='gap' or 'mean'": (
        {"pool": {"norm": "after"}},
        lambda c: c.pool.norm == "after" and c.pool.kind not in ("gap", "mean"),
    ),
    "pool.num_heads and pool.mlp_dim need pool.kind='map'": (
        {"pool": {"mlp_dim": 4}},
        lambda c: "map" not in c.pool.kind and (c.pool.num_heads or c.pool.mlp_dim),
    ),
    "needs pool.kind='token_and_mean', one class token": (
        {"pool": {"kind": "token_and_mean", "blocks": 3}},
        lambda c: c.pool.blocks > c.num_layers or (c.pool.blocks > 1 and (
            c.pool.kind != "token_and_mean" or c.tokens.class_tokens != 1)),
    ),
    "excludes representation_size and projection_size": (
        {"pool": {"kind": "token_and_mean"}, "projection_size": 3},
        lambda c: c.pool.kind.startswith("token_and_") and (
            c.representation_size or c.projection_size),
    ),
    "exclude each other": (
        {"projection_size": 4, "representation_size": 4},
        lambda c: c.representation_size and c.projection_size,
    ),
}  # fmt: skip
"""Words of a refusal: a model of two blocks with this fault alone, and who has it by the docs."""

PREDICTIONS = (
    ((3, "classification"), "single_label, multi_label"),
    ((3, "single_label", "softmx"), "mean 'softmax'"),
    ((-1,), "num_classes"),
    ((3, "multi_label", "softmax"), "give 'sigmoid' or None"),
    ((3, "regression", "sigmoid"), "num_classes=3: give None."),
    ((3, "single_label", "sigmoid"), "or task='multi_label'"),
    ((1, "single_label", "softmax"), "num_classes=1: give 'sigmoid' or None."),
)
VIEWS = (
    ({"local_crop": (0.5, 0.1)}, "two increasing area fractions"),
    ({"jitter": (0.4, 0.4, 0.2)}, "four numbers"),
    ({"blur": 1.5}, "views.blur must be a number in [0, 1]"),
    ({"global_views": 1, "local_views": 0}, "at least two views"),
)
CONDITIONS = (
    ("image_sizes", "image_sizes is not a field of ViTConfig. Did you mean 'image_size'"),
    ("tokens.masks", "mean 'mask'"),
    ("block.gated or masks!", "masks is not a field"),
    ("rope.from=axial", "mean 'form'"),
    ("replace", "replace is not a field"),
    ("pool.kind=gap|means", "pool.kind cannot be means"),
    ("tokens.mask=1", "cannot be 1"),
    ("mlp_dim=square", "cannot be square"),
    ("pool.is_map=yes", "cannot be yes"),
)


def rows(call, error, listed):
    """Rows of what is given to one function, and the words of its refusal."""
    return {repr(own): (lambda _, own=own: call(own), error, words) for own, words in listed}


REFUSALS = {
    **rows(from_dict, ConfigError, FIELDS),
    **rows(from_dict, ConfigError, [(own, said) for said, (own, _) in CONTRADICTIONS.items()]),
    **rows(lambda own: Prediction(*own), ConfigError, PREDICTIONS),
    **rows(Views.from_dict, ConfigError, VIEWS),
    **rows(parse, ValueError, CONDITIONS),
    "an unknown variant": (lambda _: variant("vit_b61"), ConfigError, "mean 'vit_b16'"),
    "missing fields": (
        lambda _: ViTConfig.from_dict({"patch_size": 16}),
        ConfigError,
        "needs hidden_size, mlp_dim, num_heads, num_layers",
    ),
    "replace validates": (lambda _: config().replace(num_heads=5), ConfigError, "num_heads=5"),
    "classify of a regression": (
        lambda _: Prediction(3, "regression").demand_classes("classify"),
        ConfigError,
        "task='regression'",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)


DRAWN = {
    "hidden_size": (4, 8, 12, 16, 18, 24),
    "num_heads": (1, 2, 3),
    "num_layers": (1, 2, 3),
    "representation_size": (None, None, 5),
    "projection_size": (None, None, 5),
    "position": POSITIONS,
    "position_resize": POSITION_RESIZES,
    "relative_position_bias": (None, "block", "shared"),
    "rope": (None, None, Rope("axial")),
    "stem": (Stem(), Stem(), Stem("packed")),
    "tokens.class_tokens": (1, 1, 0, 2),
    "tokens.distillation": (False, True),
    "pool.kind": POOLINGS,
    "pool.norm": ("before", "before", "after", "none"),
    "pool.num_heads": (None, None, 2, 3),
    "pool.mlp_dim": (None, None, 4),
    "pool.blocks": (1, 1, 2, 3),
}
"""Values by path, which contradict each other in half of the draws or more."""
as_object = functools.partial(json.loads, object_hook=lambda pairs: SimpleNamespace(**pairs))


@settings(max_examples=times(300, 5000), deadline=None)
@given(st.fixed_dictionaries({path: st.sampled_from(some) for path, some in DRAWN.items()}))
def test_a_drawn_configuration_is_refused_for_a_rule_that_it_breaks(paths):
    """And built if it breaks none."""
    fields = nest(paths)
    stated = as_object(json.dumps(fields, default=dataclasses.asdict))
    broken = [words for words, (_, holds) in CONTRADICTIONS.items() if holds(stated)]
    try:
        config(**fields)
        found = None
    except ConfigError as error:
        found = str(error)
    assert (found is None) == (not broken), (found, broken)
    assert not broken or any(words in found for words in broken), (found, broken)


@pytest.mark.parametrize(
    "fields",
    [
        {"hidden_size": -(10**5000)},
        {"hidden_size": 10**5000 + 1},
        {"stem": {"kind": "resnet", "units": [1] * 10**6}},
        {"stem": {"kind": "resnet", "width_factor": 10**5000}},
        {"pool": {"kind": "x" * 10**6}},
        {"pool": {"kind": "token_and_mean", "blocks": 10**5000}},
        {"x" * 10**6: 1},
        {"image_size": [10**5000]},
        {"block": "x" * 10**6},
    ],
    ids=lambda fields: next(iter(fields))[:20],
)
def test_a_refusal_of_huge_values_is_short(fields):
    """Values of thousands of digits and lists of a million items are abbreviated."""
    with pytest.raises(ConfigError) as caught:
        from_dict(fields)
    assert len(str(caught.value)) < 1000
