"""Laws of the JSON beside the weights, checked for every row of every dialect's tables."""

import contextlib
import functools
import json
from typing import get_args

import pytest

from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.dialects.json_fields import (
    LEFT_OUT,
    REQUIRED,
    Facts,
    JsonField,
    JsonFields,
    object_at,
)
from keras_vit.config import Task, ViTConfig
from keras_vit.config.fields import flatten, nest
from keras_vit.errors import ConfigError
from keras_vit.presets.source import COMPANIONS
from tests.checkpoints.drawn import CHANGES, PLAIN, accepted, changed, is_held

pytestmark = pytest.mark.without_backend

JOINT = (
    (("hidden_size", 32), ("mlp_dim", 128)),
    (("hidden_size", 32), ("mlp_dim", 40)),
    (("block.qkv_bias", False), ("block.projection_bias", False)),
    (("block.qkv_bias", True), ("block.projection_bias", True)),
    (("block.projection_bias", False), ("block.mlp_bias", False)),
    (("num_classes", 0), ("pool.kind", "token"), ("tokens.class_tokens", 1)),
    *((("pool.kind", kind), ("tokens.class_tokens", 0)) for kind in ("gap", "map", "unpooled")),
    (("pool.kind", "gap"), ("tokens.class_tokens", 1)),
    (("pool.kind", "mean"), ("tokens.class_tokens", 1)),
    (("pool.kind", "gap"), ("tokens.class_tokens", 1), ("pool.norm", "after")),
    (("pool.kind", "gap"), ("tokens.class_tokens", 0), ("pool.norm", "after")),
    (("pool.kind", "token_and_mean"), ("pool.blocks", 2)),
    (("pool.kind", "token_and_distillation"), ("tokens.distillation", True)),
    (("pool.kind", "map"), ("tokens.class_tokens", 0), ("pool.num_heads", 4)),
    (("pool.kind", "map"), ("tokens.class_tokens", 0), ("pool.mlp_dim", 8)),
    (("pool.kind", "map"), ("tokens.class_tokens", 1)),
    (("pool.kind", "map_of_patches"), ("tokens.class_tokens", 1)),
    (("block.gated", True), ("block.activation", "silu")),
    (("block.gated", True), ("block.activation", "silu"), ("mlp_dim", 48)),
    (("block.gated", True), ("block.activation", "gelu")),
    (("block.norm", "rms"), ("block.qk_norm", "width")),
    (("block.input_norm", "tokens"), ("patch_bias", False)),
)
"""Changes that some libraries have together alone, beside the single `CHANGES`."""

LABELS = ("a tree", "a cat", "a dog")
TASKS = get_args(Task)

TABLES = [
    pytest.param(dialect, table, id=f"{dialect.name} {'.'.join((table.file, *table.at))}")
    for dialect in DIALECTS.values()
    if not dialect.only_read
    for table in dialect.json
    if table.is_written
]
ROWS = [
    pytest.param(*param.values, row, id=f"{param.id} {' '.join(row.keys)}")
    for param in TABLES
    for row in param.values[1].rows
    if row.fields
]
CONSTANTS = [
    pytest.param(*param.values, row, id=f"{param.id} {row.keys[0]}")
    for param in TABLES
    for row in param.values[1].rows
    if isinstance(row, JsonFields) and not row.fields
]


@functools.cache
def draw_models(dialect) -> list[Facts]:
    """The models that the library can express: `accepted`, and one for each change of them."""
    bases = accepted(dialect)
    changes = (*((change,) for change in CHANGES), *JOINT)
    others = [changed(base, *change) for base in bases for change in changes]
    # Packed patches have a number and no cropped pixels.
    sized = (
        other
        for other in others
        if other and other.image_size and not (other.stem.is_packed and other.drops_pixels)
    )
    found = dict.fromkeys([*bases, *(other for other in sized if is_held(dialect, other))])
    tasks = TASKS if "task" in dialect.stated_fields else TASKS[:1]
    labels = {config: LABELS if config.num_classes == 3 else None for config in found}
    drawn = [Facts(config, labels[config], task) for config in found for task in tasks]
    # Two classes of one logit can be written only where no key states the task.
    return [
        f for f in drawn if tasks == TASKS[:1] or f.config.num_classes != 1 or f.task != TASKS[0]
    ]


def has_effect(config, field) -> bool:
    """Whether a model with another value of the field would compute otherwise."""
    if field == "position_resize":
        return config.stem.is_packed or config.grid != config.source_grid
    return field != "task" or config.num_classes > 0


def are_alike(config, field, value) -> bool:
    """Whether a model with that value of a field is the same one."""
    with contextlib.suppress(ConfigError):
        return config.replace(**nest({field: value})) == config
    return False


def keys_of(row, table, files) -> dict:
    """The keys of a row, with their values in the files."""
    place = object_at(files[table.file], table.at)
    return {key: place[key] for key in row.keys if key in place}


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
    plain = {**flatten(ViTConfig(**PLAIN).to_dict()), **dict.fromkeys(PLAIN)}
    fields = {**plain, **dialect.compute_arithmetic(stated.fields), **stated.fields}
    return {**fields, "class_names": stated.class_names, "task": stated.task}


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
def test_a_row_reads_the_field_that_it_has_written(dialect, table, row):
    """For every model; every row is written for at least one model."""
    written = 0
    for facts in draw_models(dialect):
        files = dialect.write_json(facts.config, facts.class_names, None, facts.task)
        if table.file not in files:
            continue
        written += bool(keys_of(row, table, files))
        stated = stated_by(dialect, files)
        for field in filter(functools.partial(has_effect, facts.config), row.fields):
            want, got = facts.get(field), stated[field]
            if field == "position_grid":
                want = facts.config.source_grid
            if field in ("patch_size", "image_size", "position_grid"):
                got = (got, got) if isinstance(got, int) else tuple(got)
            assert got == want or are_alike(facts.config, field, got), field
    assert written, "no model in this file has the key"


@pytest.mark.parametrize(("dialect", "table", "row"), ROWS)
def test_a_row_writes_different_values_for_different_fields(dialect, table, row):
    """Over all models of the dialect."""
    seen = {}
    for facts in draw_models(dialect):
        files = dialect.write_json(facts.config, facts.class_names, None, facts.task)
        if table.file in files:
            key = json.dumps([facts.get(field) for field in row.fields], default=str)
            content = json.dumps(keys_of(row, table, files), sort_keys=True)
            seen.setdefault(key, set()).add(content)
    varies = {content for contents in seen.values() for content in contents}
    assert len(seen) > 1, "no two models differ in this field, or the rules refuse them"
    assert len(varies) > 1


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_every_table_is_of_a_file_that_is_read_beside_the_weights(dialect):
    files = {table.file for table in dialect.json}
    assert files <= {*COMPANIONS}, "COMPANIONS of keras_vit/presets/source.py lacks it"


@pytest.mark.parametrize(("dialect", "table", "row"), CONSTANTS)
def test_another_value_of_a_constant_is_refused(dialect, table, row):
    """The message names file, key, the value found and the value expected."""
    files, place = written_by(dialect, table, draw_models(dialect)[0].config)
    place[row.keys[0]] = "otherwise"
    with pytest.raises(ValueError, match=f"{table.file} has {row.keys[0]}='otherwise', expected"):
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
