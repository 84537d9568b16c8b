"""Labels of every form, and class names that meet labels."""

import numpy as np
import pytest

from keras_vit import ConfigError, labels
from keras_vit.evaluation.targets import acceptable, class_indices, matched


def test_forms_of_labels_mean_the_same():
    """Numbers, a column of them, one-hot rows, lists, sets, an object array."""
    expected = np.eye(3, dtype=bool)[[2, 0]]
    lists = np.empty(2, object)
    lists[:] = [[2], [0]]
    forms = ([2, 0], np.array([[2.0], [0.0]]), np.eye(3)[[2, 0]], [[2], [0]], [{2}, {0}], lists)
    for form in forms:
        assert np.array_equal(acceptable(form, 3), expected)
    for form in forms[:3]:
        assert class_indices(form).tolist() == [2, 0]


@pytest.mark.parametrize(
    "bad", [[[1], [2]], np.ones((2, 3)), [0.5, 1.0], [-1, 0], np.ones((2, 2, 2))]
)
def test_one_class_per_image_is_one_whole_number(bad):
    """Lists, rows with several ones, fractions and negative numbers are none."""
    with pytest.raises(ConfigError, match="found"):
        class_indices(bad)


def test_names_match_labels():
    """By the whole label first, then by its words, whatever the capitals and underscores."""
    known = ["tench, Tinca tinca", "great white shark, man-eater", "crane", "crane, bird", "ox"]
    assert matched(["Great_White_Shark", "tench", "OX"], known, 5).tolist() == [1, 0, 4]
    assert matched(["crane"], known, 5).tolist() == [2]  # the whole label before a word


def test_wordnet_ids_of_all_classes_are_in_the_order_of_the_heads():
    """Sorted ids need no names; unsorted or fewer do."""
    ids = [f"n{k:08d}" for k in range(1000)]
    names = labels.named("imagenet1k")
    assert matched(ids, names, 1000).tolist() == list(range(1000))
    for some in (ids[::-1], ids[:10]):
        with pytest.raises(ConfigError, match="fits none"):
            matched(some, names, 1000)


def test_a_model_without_labels_takes_as_many_classes_in_their_order():
    """The number of classes is all there is to compare."""
    assert matched(["x", "y"], None, 2).tolist() == [0, 1]
    with pytest.raises(ConfigError, match="3 classes, the model has 2 and no labels"):
        matched(["x", "y", "z"], None, 2)


def test_all_misfits_are_told_at_once():
    """What fits nothing, what fits twice, and what two classes claim."""
    with pytest.raises(ConfigError) as error:
        matched(["dgo", "crane", "dog", "dog, hound"], ["dog, hound", "crane, a", "crane, b"], 3)
    message = str(error.value)
    assert message.startswith("3 of the data's 4 classes do not fit the model's 3 labels")
    for part in ("'dgo' fits none", "'crane' fits labels [1, 2]", "'dog, hound' is label 0"):
        assert part in message
