"""Every form of labels."""

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.evaluation.targets import acceptable, numbers_or_rows, undo_one_hot


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
