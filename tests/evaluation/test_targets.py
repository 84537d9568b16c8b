"""Every form of labels, and the matching of class names with the labels of a model."""

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.evaluation.targets import (
    acceptable,
    match_classes,
    numbers_or_rows,
    undo_one_hot,
)
from keras_vit.images import class_names

pytestmark = pytest.mark.without_backend


def test_all_forms_of_labels_give_the_same_classes():
    """Numbers, a column of numbers, one-hot rows, lists, sets, an object array."""
    expected = np.eye(3, dtype=bool)[[2, 0]]
    lists = np.empty(2, object)
    lists[:] = [[2], [0]]
    forms = ([2, 0], np.array([[2.0], [0.0]]), np.eye(3)[[2, 0]], [[2], [0]], [{2}, {0}], lists)
    for form in forms:
        assert np.array_equal(acceptable(form, 3), expected)
    for form in forms[:3]:
        assert undo_one_hot(numbers_or_rows(form)).tolist() == [2, 0]


def test_truth_values_are_the_numbers_of_two_classes():
    """One per image, as a comparison of arrays gives them."""
    labels = np.array([True, False])
    assert np.array_equal(acceptable(labels, 2), [[False, True], [True, False]])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([0.5, 1.0], "found"),
        ([0, np.inf], "found"),
        ([0, 2**32], "found"),
        ([0, np.nan], "found"),
        ([[0], [1, 2], 3], "lists of classes"),
        ([-1, 0], "found"),
        (np.ones((2, 2, 2)), "found"),
    ],
)
def test_labels_that_are_neither_classes_nor_rows_are_refused(bad, message):
    """Lists, mixed images, fractions, negative numbers, three axes."""
    with pytest.raises(ConfigError, match=message):
        numbers_or_rows(bad)


def test_rows_with_several_ones_stay_rows():
    rows = np.array([[1, 0, 1], [0, 0, 0]])
    assert np.array_equal(undo_one_hot(numbers_or_rows(rows)), rows.astype(bool))


def test_names_match_whole_labels_before_parts_of_labels():
    """Capitals and underscores make no difference."""
    labels = ["tench, Tinca tinca", "great white shark, man-eater", "crane", "crane, bird", "ox"]
    classes = match_classes(["Great_White_Shark", "tench", "OX"], labels, 5)
    assert classes.tolist() == [1, 0, 4]
    assert match_classes(["crane"], labels, 5).tolist() == [2]  # not 3, "crane, bird"
    assert match_classes(["u\u0308ber", "a"], ["a", "\u00fcber"], 2).tolist() == [1, 0]


def test_sorted_wordnet_ids_of_all_classes_match_the_head_in_order():
    """Ids in another order, or of only some classes, are refused."""
    ids = [f"n{k:08d}" for k in range(1000)]
    names = class_names.expand("imagenet1k")
    assert match_classes(ids, names, 1000).tolist() == list(range(1000))
    for some in (ids[::-1], ids[:10]):
        with pytest.raises(ConfigError, match="fits none"):
            match_classes(some, names, 1000)


def test_a_model_without_labels_takes_as_many_classes_in_order():
    """A model without labels has no names to compare."""
    assert match_classes(["x", "y"], None, 2).tolist() == [0, 1]
    with pytest.raises(ConfigError, match="3 classes, the model has 2 and no labels"):
        match_classes(["x", "y", "z"], None, 2)


def test_one_message_lists_all_classes_that_do_not_match():
    """A name without a label, a name with two labels, and two names for one label."""
    with pytest.raises(ConfigError) as error:
        match_classes(
            ["dgo", "crane", "dog", "dog, hound"], ["dog, hound", "crane, a", "crane, b"], 3
        )
    message = str(error.value)
    assert message.startswith("3 of the data's 4 classes do not fit the model's 3 labels")
    for part in ("'dgo' fits none", "'crane' fits labels [1, 2]", "'dog, hound' is label 0"):
        assert part in message
