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
    "has_two_heads": ("pool.kind", "tokens.class_tokens", "tokens.distillation"),
    "num_prefix_tokens": ("tokens.class_tokens", "pool.kind", "tokens.registers"),
    "num_prefix_positions": ("position", "tokens.class_tokens", "tokens.registers", "pool.kind"),
    "grid": ("image_size", "position_grid", "position"),
    "source_grid": ("image_size", "position_grid"),
    "table_grid": ("image_size",),
    "pool.kind": ("pool.kind", "projection_size", "tokens.class_tokens", "tokens.distillation"),
    "pool.is_map": ("pool.kind", "tokens.class_tokens"),
    "pool.blocks": ("pool.blocks", "tokens.class_tokens", "pool.kind", "projection_size"),
    "pool.num_heads": ("pool.num_heads", "pool.kind", "tokens.class_tokens"),
    "pool.mlp_dim": ("pool.mlp_dim", "pool.kind", "tokens.class_tokens"),
    "pool.norm": ("pool.norm", "pool.kind"),
    "tokens.class_tokens": ("tokens.class_tokens", "tokens.distillation", "pool.kind"),
    "tokens.distillation": ("tokens.distillation", "tokens.class_tokens", "pool.kind"),
    "projection_size": ("projection_size", "pool.kind"),
    "position": ("position", "tokens.class_tokens", "tokens.registers", "pool.kind"),
    "stem.is_resnet": ("stem",),
    "stem.is_packed": ("stem", "stem.kind", "rope", "relative_position_bias", "position_resize"),
    "stem.kind": ("stem", "stem.kind", "rope", "relative_position_bias", "position_resize"),
    "rope": ("rope", "stem.kind"),
    "relative_position_bias": ("relative_position_bias", "stem.kind"),
}
"""A property, or a field that depends on others -> the fields that change it."""
FIELDS_OF_FUNCTIONS = (
    *("mlp_dim", "stem", "position_grid", "pool.kind", "block.norm", "image_size", "block.gated"),
)
"""Fields on which the rules that are functions depend."""


def fields_of(words, rule) -> list[str]:
    """The fields that may decide whether a model breaks a rule."""
    names = FIELDS_OF_FUNCTIONS
    if words.partition(" other than ")[0] in ALL_VALUES:  # words of `limit_to`
        names = [words.partition(" ")[0]]
    elif isinstance(rule, str):
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
    fields, found = fields_of(words, rule), []
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
