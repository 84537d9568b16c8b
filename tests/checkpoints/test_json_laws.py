"""Laws of the JSON beside the weights, checked for every row of every dialect's tables."""

import contextlib
import itertools
import json

import pytest

from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.dialects.json_fields import (
    LEFT_OUT,
    REQUIRED,
    Facts,
    JsonConstant,
    JsonField,
    JsonFields,
)
from keras_vit.errors import ConfigError
from keras_vit.models.config import ViTConfig
from keras_vit.presets.source import COMPANIONS
from tests.checkpoints.beyond import beyond_library

pytestmark = pytest.mark.without_backend

SIZES = {
    "patch_size": (4, 8),
    "hidden_size": 16,
    "mlp_dim": 24,
    "num_heads": 2,
    "num_layers": 2,
    "image_size": (16, 24),
    "num_classes": 3,
}
OTHERS = (
    {"patch_size": 4},
    {"hidden_size": 32, "mlp_dim": 48},
    {"hidden_size": 32, "mlp_dim": 128},
    {"mlp_dim": 128},
    {"mlp": "gated", "mlp_dim": 48},
    {"mlp": "gated"},
    {"mlp": "gated", "gate": "gelu"},
    {"qkv_bias": (True, True, False)},
    {"projection_bias": False},
    {"mlp_bias": False},
    {"qkv_bias": False, "projection_bias": False},
    {"qkv_bias": True, "projection_bias": True},
    {"mlp_bias": True},
    {"patch_bias": False},
    {"mask_token": False},
    {"position_resize": "bicubic_antialias"},
    {"num_registers": 3},
    {"num_class_tokens": 3},
    {"joined_class_tokens": 1},
    {"patch_shift": 1},
    {"rope": {"form": "dinov3", "theta": 50.0}},
    {"stochastic_depth_rate": 0.25},
    {"layer_scale_init": 0.5},
    {"projection_dim": 7},
    {"pooling": "token", "num_classes": 0},
    {"regression": True},
    {"pooling": "token_and_distillation"},
    {"mlp_dim": 40},
    {"num_heads": 4},
    {"num_layers": 5},
    {"image_size": (32, 40)},
    {"channels": 1},
    {"num_classes": 0},
    {"num_classes": 2},
    {"pooling": "gap"},
    {"pooling": "gap", "class_token": True},
    {"pooling": "gap", "class_token": True, "class_token_in_mean": True},
    {"pooling": "token_and_mean", "class_token_blocks": 2},
    {"pooling": "map"},
    {"position_before_class": True},
    {"qkv_bias": False},
    {"representation_size": 9},
    {"dropout_rate": 0.25},
    {"attention_dropout_rate": 0.5},
    {"gelu": "tanh"},
    {"gelu": "exact"},
    {"layer_norm_epsilon": 1e-3},
    {"layer_norm_epsilon": 1e-5},
    {"pre_norm": True, "patch_bias": False},
    {"final_norm": False},
    {"qk_norm": "head"},
    {"norm": "rms"},
    {"norm": "rms", "qk_norm": "width"},
    {"sub_norm_attention": True},
    {"sub_norm_mlp": True},
    {"layer_scale": True},
    {"position": "none"},
    {"pooling": "map", "class_token": True, "prefix_in_map": False},
    {"pooling": "map", "map_num_heads": 4},
    {"pooling": "map", "map_mlp_dim": 8},
    {"rope": {"form": "axial", "indexing": "xy", "reference_grid": (4, 4), "offset": 1.0}},
    {"projection_bias": False, "mlp_bias": False},
    {
        **{"norm": "rms", "mlp": "gated", "patch_norm": True},
        **{"layer_norm_epsilon": 1e-5, "pooling": "gap"},
    },
    {"pool_before_norm": True, "pooling": "gap"},
    {"relative_position_bias": None},
    {"relative_position_bias": "shared"},
    {"layer_scale": False},
    {"position": "learned"},
    {"image_size": (32, 32)},
    {"patch_size": (4, 4)},
    {"patch_size": 4, "image_size": 32},
    {"pooling": "token", "pool_before_norm": False},
    *(
        {
            **{"relative_position_bias": kind, "rope": None, "mlp": "plain", "num_registers": 0},
            **{"position": "none"},
        }
        for kind in ("block", "shared")
    ),
)
"""Differences between models, one at a time. A new field of a row needs a line here."""

OWN_OTHERS = {
    "timm/naflex": ({"position_resize": "bilinear_antialias"}, {"position_grid": (5, 7)}),
}
"""Further differences of dialects that store positions for another grid than the images'."""

LABELS = ("a tree", "a cat", "a dog")

TABLES = [
    pytest.param(dialect, table, id=f"{dialect.name} {'.'.join((table.file, *table.at))}")
    for dialect in DIALECTS.values()
    if not dialect.only_read
    for table in dialect.json
    if table.is_read and table.is_written
]
ROWS = [
    pytest.param(*param.values, row, id=f"{param.id} {' '.join(row.keys)}")
    for param in TABLES
    for row in param.values[1].rows
    if isinstance(row, (JsonField, JsonFields))
]
CONSTANTS = [
    pytest.param(*param.values, row, id=f"{param.id} {row.key}")
    for param in TABLES
    for row in param.values[1].rows
    if isinstance(row, JsonConstant)
]


def draw_models(dialect) -> list[Facts]:
    """The models that the library can express: a plain model, and one for each difference."""
    found = []
    for other in ({}, *OTHERS, *OWN_OTHERS.get(dialect.name, ())):
        numerics = dialect.numerics.to_dict()
        fields = {name: value for name, value in other.items() if name not in numerics}
        own = {name: value for name, value in other.items() if name in numerics}
        home = dialect.sample
        try:
            config = ViTConfig(**{**SIZES, **home, **fields, "numerics": {**numerics, **own}})
        except ConfigError:  # a difference that a model of this family cannot have
            continue
        if not beyond_library(dialect, config) and all(
            itertools.starmap(dialect.can_compute, own.items())
        ):
            found.append(Facts(config, LABELS if config.num_classes == 3 else None))
    return found


def written_by(dialect, table, config) -> tuple[dict, dict]:
    """The JSON files that a dialect writes, and the object in them that a table describes."""
    files = json.loads(json.dumps(dialect.write_json(config, LABELS)))
    place = files[table.file]
    for key in table.at:
        place = place[key]
    return files, place


def stated_by(dialect, files) -> dict:
    """The facts read from JSON by field; fields without a fact have the dialect's defaults."""
    stated = dialect.read_json(json.loads(json.dumps(files)))
    numerics = dialect.numerics.to_dict() | stated.fields.get("numerics", {})
    fields = {**ViTConfig(**SIZES).to_dict(), **dict.fromkeys(SIZES), **stated.fields}
    fields |= {f"numerics.{name}": value for name, value in numerics.items()}
    return {**fields, "class_names": stated.class_names}


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
def test_a_row_reads_the_field_that_it_has_written(dialect, table, row):
    """For every model; every row is written for at least one model."""
    written = 0
    for facts in draw_models(dialect):
        files = dialect.write_json(facts.config, facts.class_names)
        if table.file not in files:
            continue
        written += bool(row.write_for(facts))
        stated = stated_by(dialect, files)
        if stated["class_token"] is None:
            stated["class_token"] = stated["pooling"] == "token"
        for field in row.fields:
            want, got = facts.get(field), stated[field]
            if field == "class_token":
                want = facts.config.has_class_token
            if field in ("patch_size", "image_size"):
                got = (got, got) if isinstance(got, int) else tuple(got)
            assert got == want, field
    assert written, "no model in this file has the key"


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
def test_a_row_writes_different_values_for_different_fields(dialect, table, row):
    """Over all models of the dialect."""
    seen = {}
    for facts in draw_models(dialect):
        key = json.dumps([facts.get(field) for field in row.fields], default=str)
        seen.setdefault(key, set()).add(json.dumps(row.write_for(facts), sort_keys=True))
    varies = {content for contents in seen.values() for content in contents}
    assert len(seen) > 1, (
        "no two models of OTHERS differ in this field, or the rules refuse them beside the sample"
    )
    assert len(varies) > 1


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_every_table_is_of_a_file_that_is_read_beside_the_weights(dialect):
    files = {table.file for table in dialect.json}
    assert files <= {*COMPANIONS}, "COMPANIONS of keras_vit/presets/source.py lacks it"


@pytest.mark.parametrize(("dialect", "table", "row"), CONSTANTS)
def test_another_value_of_a_constant_is_refused(dialect, table, row):
    """The message names file, key, the value found and the value expected."""
    files, place = written_by(dialect, table, draw_models(dialect)[0].config)
    place[row.key] = "otherwise"
    with pytest.raises(ValueError, match=f"{table.file} has {row.key}='otherwise', expected"):
        dialect.read_json(files)


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
@pytest.mark.parametrize("wrong", [{"a": 1}, [[]], "\x00", 10**30, -1.5, True], ids=str)
def test_a_value_of_another_type_is_read_or_refused_by_a_value_error(dialect, table, row, wrong):
    """No other exception escapes, and the message is short."""
    files, place = written_by(dialect, table, draw_models(dialect)[0].config)
    place[row.keys[0]] = wrong
    try:
        dialect.read_json(files)
    except ValueError as error:
        assert len(str(error)) < 1000


class Text(str):
    """A text that fails the test if it is repeated."""

    def __mul__(self, count):
        raise AssertionError(f"A text of the file is repeated {count} times.")

    __rmul__ = __mul__


class Sequence(list):
    """A list that fails the test if it is repeated."""

    __mul__ = __rmul__ = __imul__ = Text.__mul__


@pytest.mark.parametrize("wrong", [Text("8"), Sequence([8])], ids=["text", "list"])
@pytest.mark.parametrize(("dialect", "table"), TABLES)
def test_no_text_or_list_is_repeated(dialect, table, wrong):
    """A text of a kilobyte times a large number of the same file would fill the memory."""
    for facts in draw_models(dialect):
        files = dialect.write_json(facts.config, facts.class_names)
        if table.file not in files:
            continue
        place = files[table.file]
        for key in table.at:
            place = place[key]
        for key, value in list(place.items()):
            if isinstance(value, int | float):
                place[key] = wrong
                with contextlib.suppress(ValueError):
                    dialect.read_json(files)
                place[key] = value


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
def test_an_absent_key_has_a_default_or_is_named_as_missing(dialect, table, row):
    """The library's default is read, or no fact, or the required key is named."""
    if not isinstance(row, JsonField):
        return
    files, place = written_by(dialect, table, draw_models(dialect)[0].config)
    place.pop(row.key, None)
    if row.default is REQUIRED:
        with pytest.raises(ValueError, match=f"{table.file} has no {row.key}"):
            dialect.read_json(files)
    elif row.default is not LEFT_OUT:
        assert dialect.read_json(files)
