"""The laws of the JSON beside the weights, over every row of every dialect's tables."""

import json

import pytest

from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.dialects.json_fields import (
    NOT_TOLD,
    REQUIRED,
    Facts,
    JsonConstant,
    JsonField,
    JsonFields,
)
from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from tests.checkpoints.homes import HOMES

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
    {"mlp": "gated_packed", "mlp_dim": 48},
    {"mlp": "gated"},
    {"mlp": "gated", "gate": "gelu"},
    {"qkv_bias": (True, True, False)},
    {"projection_bias": False},
    {"mlp_bias": False},
    {"qkv_bias": False, "projection_bias": False},
    {"patch_bias": False},
    {"mask_token": False},
    {"position_resize": "bicubic_antialias"},
    {"num_registers": 3},
    {"rope": {"form": "dinov3", "theta": 50.0}},
    {"stochastic_depth_rate": 0.25},
    {"layer_scale_init": 0.5},
    {"projection_dim": 7},
    {"classifier": "token", "num_classes": 0},
    {"classifier": "token_and_distillation"},
    {"mlp_dim": 40},
    {"num_heads": 4},
    {"num_layers": 5},
    {"image_size": (32, 40)},
    {"channels": 1},
    {"num_classes": 0},
    {"num_classes": 2},
    {"classifier": "gap"},
    {"classifier": "gap", "class_token": True},
    {"classifier": "gap", "class_token": True, "class_token_in_mean": True},
    {"classifier": "map"},
    {"position_before_class": True},
    {"qkv_bias": False},
    {"representation_size": 9},
    {"dropout_rate": 0.25},
    {"attention_dropout_rate": 0.5},
    {"gelu": "tanh"},
    {"gelu": "exact"},
    {"layer_norm_epsilon": 1e-3},
    {"pool_before_norm": True, "classifier": "gap"},
)
"""What models may differ in, one after the other. A new field of a row needs its line here."""

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


def models_of(dialect) -> list[Facts]:
    """Models that the library can express: a plain one, and one for each difference."""
    found = []
    for other in ({}, *OTHERS):
        numerics = dialect.numerics.to_dict()
        fields = {name: value for name, value in other.items() if name not in numerics}
        own = {name: value for name, value in other.items() if name in numerics}
        home = HOMES.get(dialect.name, {})
        try:
            config = ViTConfig(**{**SIZES, **home, **fields, "numerics": {**numerics, **own}})
        except ConfigError:  # a difference that a model of this family cannot have
            continue
        beyond = any(cannot(config) for cannot, _ in dialect.refusals + dialect.limits)
        if not beyond and set(own) <= set(dialect.expresses):
            found.append(Facts(config, LABELS if config.num_classes == 3 else None))
    return found


def stated_by(dialect, files) -> dict:
    """What JSON states, by the fields of rows, over what the dialect takes for granted."""
    stated = dialect.read_json(json.loads(json.dumps(files)))
    numerics = dialect.numerics.to_dict() | stated.fields.get("numerics", {})
    fields = {**ViTConfig(**SIZES).to_dict(), **dict.fromkeys(SIZES), **stated.fields}
    fields |= {f"numerics.{name}": value for name, value in numerics.items()}
    return {**fields, "labels": stated.labels}


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
def test_what_a_row_writes_it_reads(dialect, table, row):
    """Every row is written for some model, and gives back the field of each model."""
    fields = (row.field,) if isinstance(row, JsonField) else row.fields
    written = 0
    for facts in models_of(dialect):
        files = dialect.write_json(facts.config, facts.labels)
        if table.file not in files:
            continue
        written += bool(row.written(facts))
        stated = stated_by(dialect, files)
        if stated["class_token"] is None:
            stated["class_token"] = stated["classifier"] == "token"
        for field in fields:
            want, got = facts.of(field), stated[field]
            if field == "class_token":
                want = facts.config.has_class_token
            if field in ("patch_size", "image_size"):
                got = (got, got) if isinstance(got, int) else tuple(got)
            if field == "mlp":  # one library's only form of the gated MLP is another's packed one
                want, got = want.removesuffix("_packed"), got.removesuffix("_packed")
            assert got == want, field
    assert written, "no model in this file has the key"


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
def test_a_row_is_sensitive(dialect, table, row):
    """Two models that differ in the field differ in what the row writes, and only then."""
    fields = (row.field,) if isinstance(row, JsonField) else row.fields
    seen = {}
    for facts in models_of(dialect):
        key = json.dumps([facts.of(field) for field in fields], default=str)
        seen.setdefault(key, set()).add(json.dumps(row.written(facts), sort_keys=True))
    varies = {content for contents in seen.values() for content in contents}
    assert len(seen) > 1, "OTHERS has no two models that differ in this field"
    assert len(varies) > 1


@pytest.mark.parametrize(("dialect", "table", "row"), CONSTANTS)
def test_a_constant_is_checked(dialect, table, row):
    """Another value is refused, with file, key, what was found and what is expected."""
    files = json.loads(json.dumps(dialect.write_json(models_of(dialect)[0].config, LABELS)))
    place = files[table.file]
    for key in table.at:
        place = place[key]
    place[row.key] = "otherwise"
    with pytest.raises(ValueError, match=f"{table.file} has {row.key}='otherwise', expected"):
        dialect.read_json(files)


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
@pytest.mark.parametrize("wrong", [{"a": 1}, [[]], "\x00", 10**30, -1.5, True], ids=str)
def test_a_value_of_another_kind_is_refused_or_read(dialect, table, row, wrong):
    """Whatever stands under a key, reading it ends in fields or in a ValueError."""
    files = json.loads(json.dumps(dialect.write_json(models_of(dialect)[0].config, LABELS)))
    place = files[table.file]
    for key in table.at:
        place = place[key]
    place[row.keys[0]] = wrong
    try:
        dialect.read_json(files)
    except ValueError as error:
        assert len(str(error)) < 1000


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
def test_a_key_that_is_absent(dialect, table, row):
    """The library's default is read, nothing is stated, or the key is named as missing."""
    if not isinstance(row, JsonField):
        return
    files = json.loads(json.dumps(dialect.write_json(models_of(dialect)[0].config, LABELS)))
    place = files[table.file]
    for key in table.at:
        place = place[key]
    place.pop(row.key, None)
    if row.default is REQUIRED:
        with pytest.raises(ValueError, match=f"{table.file} has no {row.key}"):
            dialect.read_json(files)
    elif row.default is not NOT_TOLD:
        assert dialect.read_json(files)
