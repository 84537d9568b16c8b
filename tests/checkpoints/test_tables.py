"""Laws of the tables of families: their limits, values of other types, the order of facts."""

import itertools
import json

import pytest

from keras_vit.checkpoints.facts import state_facts
from keras_vit.checkpoints.families import formats_named
from keras_vit.checkpoints.families.family import Stated
from keras_vit.checkpoints.match import Evidence
from tests.checkpoints.drawn import CHANGES, WRITTEN, accepted, changed, written

pytestmark = pytest.mark.without_backend

ids = lambda f: f"{f.name} {f.class_name}"  # noqa: E731
written_formats = pytest.mark.parametrize("format", WRITTEN, ids=ids)


class Text(str):
    """A text that fails the test if it is repeated, which would fill the memory."""

    def __mul__(self, count):
        raise AssertionError(f"A text or list of the file is repeated {count} times.")

    __rmul__ = __mul__


class List(list):
    """A list that fails the test if it is repeated."""

    __mul__ = __rmul__ = __imul__ = Text.__mul__


OTHERS = {"a text": "otherwise", "a number in a text": Text("8"), "a number in a list": List([8])}
OTHERS |= {"a list": [[]], "an object": {"a": 1}, "a huge number": 10**30}
OTHERS |= {"a negative number": -1.5, "true": True}


@pytest.mark.parametrize("words", {words: 0 for format in WRITTEN for words in format.limits})
def test_a_limit_is_the_only_reason_to_refuse_some_model(words):
    """Of the models that differ from a written one by one or two fields; the refusal says it."""
    pairs = list(itertools.combinations(CHANGES, 2))
    pairs.sort(key=lambda pair: "pool.kind" not in dict(pair))  # with which most limits deal
    changes = *((c,) for c in CHANGES), *pairs
    bases = [(f, base) for f in WRITTEN if words in f.limits for base in accepted(f)]
    tried = ((f, changed(base, *own)) for own, (f, base) in itertools.product(changes, bases))
    met = ((f, other) for f, other in tried if other and words in f.find_met(other))
    answers = (written(format, other) for format, other in met)
    assert any({*getattr(answer, "differences", ())} == {words} for answer in answers)


@written_formats
@pytest.mark.parametrize("value", OTHERS.values(), ids=OTHERS)
def test_a_value_of_another_type_is_read_or_refused_by_a_short_message(format, value):
    """No other exception escapes, and no text or list of the file is repeated."""
    for config in accepted(format):
        stated = format.library.read(
            json.loads(json.dumps(written(format, config).files)), [format]
        )
        for codecs, name in itertools.product((format.keys, format.shapes), stated.keys):
            try:
                format.read_keys(stated._replace(keys={**stated.keys, name: value}), codecs)
            except ValueError as error:
                assert len(str(error)) < 1000


def test_the_first_of_caller_keys_arrays_and_defaults_decides():
    """Defaults of an architecture are guesses."""
    (format,) = [f for f in formats_named("timm") if f.class_name == "VisionTransformer"]
    shows = {"pool.kind": "gap", "tokens.class_tokens": 0, "hidden_size": 8}
    evidence = Evidence(format, shows, {}, {}, frozenset(), {})
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
