"""Laws of the tables of families: their keys, their limits, and the order of their facts."""

import ast
import itertools
import json
from pathlib import Path

import pytest

from keras_vit.checkpoints import families
from keras_vit.checkpoints.facts import state_facts
from keras_vit.checkpoints.families import FAMILIES, FORMATS, formats_named
from keras_vit.checkpoints.families.family import Stated
from keras_vit.checkpoints.match import Evidence
from keras_vit.checkpoints.writing import Written
from keras_vit.config.vit import SWITCHES
from keras_vit.config.weights.conditions import Place, parse
from keras_vit.config.weights.lexicon import LEXICON
from keras_vit.errors import CheckpointError
from keras_vit.presets.source import COMPANIONS
from tests.checkpoints.drawn import CHANGES, WRITTEN, accepted, changed, written

pytestmark = pytest.mark.without_backend

ids = lambda f: f"{f.name} {f.class_name}"  # noqa: E731
formats = pytest.mark.parametrize("format", FORMATS, ids=ids)
written_formats = pytest.mark.parametrize("format", WRITTEN, ids=ids)
OTHERS = {"a text": "otherwise", "a list": [[]], "an object": {"a": 1}, "a huge number": 10**30}
OTHERS |= {"a negative number": -1.5, "true": True}


@formats
def test_a_table_speaks_of_weights_and_fields_that_exist(format):
    assert format.names.keys() <= {word.path for word in LEXICON}
    conditions = [stored.when for own in format.names.values() for stored in own]
    conditions += [rule for rule in format.limits.values() if isinstance(rule, str)]
    conditions += [own.when for own in format.family.open.values() if own.when != "another"]
    for condition in conditions:
        parse(condition)
    for field in (*format.stated, *format.fixed, *format.family.open):
        Place(field).declaration()
    assert {*format.library.json} <= {*COMPANIONS, "open_clip_config.json"}


def test_a_table_holds_no_function():
    """Codecs have names, and stand in modules that families share."""
    folder, shared = Path(families.__file__).parent, ("family", "keys", "names", "codecs")
    for file in folder.rglob("*.py"):
        if file.stem in (*shared, "library", "processor", "images", "architectures", "by_name"):
            continue
        tree = ast.parse(file.read_text("utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        tables = [node for node in calls if getattr(node.func, "id", "") == "Family"]
        inner = [node for table in tables for node in ast.walk(table)]
        assert not [node for node in inner if isinstance(node, ast.Lambda)], file


def test_limits_of_several_fields_are_few():
    """Whatever else a format cannot hold follows from its names, keys and constants."""
    tables = [*(f.library.limits for f in FAMILIES), *(f.limits for f in FAMILIES)]
    tables += [row.limits for family in FAMILIES for row in family.classes.values()]
    assert len({words for limits in tables for words in limits}) <= 30


@written_formats
def test_a_model_that_meets_a_limit_is_refused_in_its_words(format):
    """Of the models that differ from a written one by one or two fields."""
    open_limits = {**format.family.limits, **format.row.limits}
    bases = accepted(format)
    changes = itertools.chain(((c,) for c in CHANGES), itertools.combinations(CHANGES, 2))
    for own, base in itertools.product(changes, bases):
        if not open_limits:
            break
        other = changed(base, *own)
        for words in format.find_met(other) if other else ():
            if words in open_limits:
                answer = written(format, other)
                assert isinstance(answer, CheckpointError)
                if words in str(answer) or "has no place for" in str(answer):
                    del open_limits[words]
    assert not open_limits


@written_formats
def test_a_model_with_another_field_is_written_or_refused_by_its_name(format):
    """Or by the words for the part."""
    words = [switch.words for switch in SWITCHES.values()]
    base = accepted(format)[0]
    for path, value in CHANGES:
        other = changed(base, (path, value))
        answer = None if other is None else written(format, other)
        if isinstance(answer, CheckpointError):
            assert len(str(answer)) < 700
            named = (path, "=", *words, "has no place for", "no architecture", *format.limits)
            assert any(word in str(answer) for word in named), str(answer)


@written_formats
def test_keys_are_read_as_they_were_written(format):
    """By themselves, whatever the arrays show."""
    for config in accepted(format):
        answer = written(format, config)
        assert isinstance(answer, Written)
        if not answer.files:
            continue
        files = json.loads(json.dumps(answer.files))
        told, _ = format.read_keys(format.library.read(files, [format]), format.keys)
        for field, value in told.items():
            own = Place(field).read(answer.config)
            if field == "rope" and own is not None:
                value = type(own).read(value)
            if field not in ("image_size", "position_grid", "block.layer_scale"):
                assert own == value or (own, value) == (None, False), field


@written_formats
@pytest.mark.parametrize("value", OTHERS.values(), ids=OTHERS)
def test_a_value_of_another_type_is_read_or_refused_by_a_short_message(format, value):
    """No other exception escapes."""
    files = written(format, accepted(format)[0]).files
    stated = format.library.read(json.loads(json.dumps(files)), [format])
    for codecs in (format.keys, format.shapes):
        for name in {name for keys in codecs for name in keys.split()} & stated.keys.keys():
            try:
                format.read_keys(stated._replace(keys={**stated.keys, name: value}), codecs)
            except ValueError as error:
                assert len(str(error)) < 1000


def test_the_first_of_caller_keys_arrays_and_constants_decides():
    """Constants of a family are facts of every file; defaults of an architecture are guesses."""
    (format,) = [f for f in formats_named("timm") if f.class_name == "VisionTransformer"]
    shows = {"pool.kind": "gap", "tokens.class_tokens": 0, "hidden_size": 8}
    evidence = Evidence(format, shows, {}, frozenset(), {})
    defaults = {"global_pool": "token", "act_layer": "quick_gelu", "class_token": True}

    def pool(**keys):
        stated = Stated(keys=keys, defaults=defaults)
        return state_facts(evidence, stated, caller, {})["pool.kind"]

    caller: dict = {}
    assert pool() == "gap"  # the arrays, not the architecture
    assert pool(global_pool="map") == "map_of_patches"  # a key
    caller = {"pool.kind": "unpooled"}
    assert pool(global_pool="map") == "unpooled"
    facts = state_facts(evidence, Stated(defaults=defaults), {}, {})
    assert facts["block.activation"] == "quick_gelu"  # the architecture, not the library
    vit = next(f for f in formats_named("transformers") if f.class_name == "IJepaModel")
    evidence = Evidence(vit, {"pool.kind": "map"}, {}, frozenset(), {})
    assert state_facts(evidence, Stated(), {}, {})["pool.kind"] == "gap"  # the family's constant


def test_keys_that_arrays_contradict_are_named_together():
    vit = next(f for f in formats_named("transformers") if f.class_name == "ViTModel")
    evidence = Evidence(vit, {"hidden_size": 8, "num_layers": 2}, {}, frozenset(), {})
    stated = Stated(keys={"hidden_size": 16, "num_hidden_layers": 3, "intermediate_size": 8})
    with pytest.raises(CheckpointError, match="hidden_size=16.* 8; num_layers=3.* 2$"):
        state_facts(evidence, stated, {}, {})
