"""Laws of refusals: every rule of every dialect is broken by a model, which is then refused."""

import itertools

import pytest

from keras_vit.checkpoints.dialects.base import find_met
from keras_vit.checkpoints.export import check_expressible
from keras_vit.config import ViTConfig
from keras_vit.config.weights.conditions import Place, parse
from keras_vit.errors import CheckpointError
from tests.checkpoints.drawn import ALL_VALUES, WRITTEN, accepted, changed

pytestmark = pytest.mark.without_backend

FIELDS_BEHIND = {
    "has_class_token": ("pooling", "class_token", "distillation_token"),
    "has_class_position": ("pooling", "class_token", "position_before_class"),
    "is_binary": ("num_classes", "task"),
    "has_two_heads": ("pooling", "num_class_tokens", "distillation_token"),
    "num_prefix_tokens": ("pooling", "class_token", "num_registers"),
    "num_prefix_positions": ("position_before_class", "position_before_registers"),
    "grid": ("image_size", "position_grid", "position"),
    "source_grid": ("image_size", "position_grid"),
    "table_grid": ("image_size",),
    "pooling": ("pooling", "projection_dim", "num_class_tokens"),
    "class_token": ("class_token", "pooling", "distillation_token"),
    "joined_class_tokens": (
        "joined_class_tokens",
        "num_class_tokens",
        "pooling",
        "class_token",
        "distillation_token",
    ),
    "num_class_tokens": ("num_class_tokens", "distillation_token", "pooling", "class_token"),
    "class_token_in_mean": ("class_token_in_mean", "pooling", "class_token"),
    "class_token_blocks": ("class_token_blocks", "num_class_tokens", "pooling", "projection_dim"),
    "prefix_in_map": ("prefix_in_map", "pooling", "class_token"),
    "map_num_heads": ("map_num_heads", "pooling", "class_token"),
    "map_mlp_dim": ("map_mlp_dim", "pooling", "class_token"),
    "projection_dim": ("projection_dim", "pooling"),
    "position_before_class": ("position_before_class", "position", "class_token", "pooling"),
    "position_before_registers": ("position_before_registers", "num_registers"),
    "distillation_token": ("distillation_token", "num_class_tokens", "pooling", "class_token"),
    "native_aspect": (
        *("native_aspect", "rope", "relative_position_bias"),
        "numerics.position_resize",
    ),
    "rope": ("rope", "native_aspect"),
    "relative_position_bias": ("relative_position_bias", "native_aspect"),
    "numerics.pool_before_norm": ("numerics.pool_before_norm", "pooling"),
}
"""A property, or a field that depends on others -> the fields that change it."""
FIELDS_OF_FUNCTIONS = ("mlp_dim", "resnet", "position_grid", "pooling", "norm", "image_size", "mlp")
"""Fields on which the rules that are functions depend."""


def fields_of(rule) -> list[str]:
    """The fields that may decide whether a model breaks a rule."""
    names = FIELDS_OF_FUNCTIONS
    if isinstance(rule, str):
        terms = list(itertools.chain(*parse(rule).alternatives))
        places = [v.path for term in terms for v in term.values if isinstance(v, Place)]
        paths = [*(term.field for term in terms), *places]
        names = [name for path in paths for name in (path, path.partition(".")[0])]
    behind = itertools.chain.from_iterable(FIELDS_BEHIND.get(name, (name,)) for name in names)
    return [name for name in dict.fromkeys(behind) if ALL_VALUES.get(name)]


def others(config: ViTConfig, fields, count: int):
    """Yields models that differ from a model in a number of some fields."""
    for names in itertools.combinations(fields, count):
        for values in itertools.product(*(ALL_VALUES[name] for name in names)):
            if other := changed(config, *zip(names, values, strict=True)):
                yield other


def breaking(dialect, words, rule) -> ViTConfig:
    """A model that breaks a rule, and no other one if few changes to a model show one."""
    fields, found = fields_of(rule), []
    for count in range(1, len(fields) + 1):
        for config in accepted(dialect):
            for other in others(config, fields, count):
                if find_met({words: rule}, other):
                    found.append(other)
                    if find_met(dialect.refusals, other) == [words]:
                        return other
        if found:
            break
    assert found, f"no model breaks the rule {words!r}: VALUES needs a value of {rule}"
    return min(found, key=lambda config: len(find_met(dialect.refusals, config)))


@pytest.mark.parametrize("dialect", WRITTEN, ids=lambda dialect: dialect.name)
def test_a_model_that_breaks_a_rule_is_refused_in_its_words(dialect):
    """For every rule; the message names all rules that the model breaks."""
    for words, rule in dialect.refusals.items():
        config = breaking(dialect, words, rule)
        with pytest.raises(CheckpointError) as error:
            check_expressible(config, dialect)
        broken = find_met(dialect.refusals, config)
        assert words in broken
        assert [reason for reason in broken if reason not in str(error.value)] == []


@pytest.mark.parametrize("dialect", WRITTEN, ids=lambda dialect: dialect.name)
def test_a_model_that_breaks_no_rule_is_accepted(dialect):
    """No error is raised."""
    for config in accepted(dialect):
        check_expressible(config, dialect)
