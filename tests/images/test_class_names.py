"""Class names: the shipped lists, what files of timm state, and how names are matched."""

from importlib.metadata import distribution
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.checkpoints.families import formats_named
from keras_vit.images import class_names
from keras_vit.images.class_names import match_classes

pytestmark = pytest.mark.without_backend

SOURCES = {
    "imagenet1k": "imagenet_synsets.txt",
    "imagenet21k": "imagenet21k_goog_synsets.txt",
}
"""The order of the classes in timm."""
NAMES = class_names.expand("imagenet1k")


@pytest.mark.parametrize("word", SOURCES)
def test_a_shipped_list_has_a_name_for_every_class(word):
    """No name is empty; the files that are shipped equal the output of weights/make_labels.py."""
    folder = Path(str(distribution("timm").locate_file("timm/data/_info")))
    lines = (folder / "imagenet_synset_to_lemma.txt").read_text().splitlines()
    lemmas = dict(line.split("\t") for line in lines)
    names = class_names.expand(word)
    assert names == tuple(lemmas[each] for each in (folder / SOURCES[word]).read_text().split())
    assert len(names) == class_names.NAMED[word]
    assert all(name and name == name.strip() for name in names)


TAGS = [
    ("augreg_in21k_ft_in1k", 1000, {}, "imagenet1k"),
    ("augreg_in21k", 21843, {}, "imagenet21k"),
    ("augreg_in21k", 21841, {}, None),
    ("mine", 1000, {}, None),
    ("x_in1k", 1000, {"label_names": ["a"]}, ("a",)),
]


@pytest.mark.parametrize(("tag", "count", "further", "expected"), TAGS)
def test_imagenet_labels_are_recognised_by_timms_tag(tag, count, further, expected):
    """The tag and the number of classes must agree; the names in a file take precedence."""
    config = {"num_classes": count, **further, "pretrained_cfg": {"tag": tag}}
    library = formats_named("timm")[0].library
    assert library.class_names({"config.json": config}, count) == expected


@given(order=st.permutations(range(6)), spell=st.sampled_from((str, str.upper, str.swapcase)))
@settings(max_examples=30, deadline=None)
def test_names_match_in_any_order_and_spelling(order, spell):
    """A whole name, or a part before a comma, with spaces or underscores."""
    known = [
        "tench, Tinca tinca",
        "great white shark, man-eater",
        "Crane",
        "ox",
        "\u00fcber",
        "a b",
    ]
    short = ["Tinca tinca", "great_white_shark", "crane", "ox", "u\u0308ber", "a_b"]
    for names in (known, short):
        assert match_classes([spell(names[k]) for k in order], known) == list(order)


MATCHES = [
    (["crane"], ["crane, bird", "crane"], [1]),  # whole names before parts of names
    (["sun"], ["sun, Sun", "moon"], [0]),
    # Sorted WordNet ids of all classes
    ([f"n{k:08d}" for k in range(1000)], NAMES, list(range(1000))),
    # Names that number the classes, unless the model has such names
    (["0", "1"], ["dog", "cat", "bird"], [0, 1]),
    (["0", "1", "2"], ["2", "0", "1"], [1, 2, 0]),
    (sorted(map(str, range(12))), list("abcdefghijkl"), sorted(range(12), key=str)),
]


@pytest.mark.parametrize(("given_names", "names", "places"), MATCHES, ids=range(len(MATCHES)))
def test_names_match_whole_names_ids_or_numbers(given_names, names, places):
    assert match_classes(given_names, names) == places
