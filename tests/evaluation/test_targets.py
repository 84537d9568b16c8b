"""Every form of labels."""

import numpy as np

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
    truth_values = np.array([True, False])  # of two classes, one per image
    assert np.array_equal(acceptable(truth_values, 2), [[False, True], [True, False]])
    several = np.array([[1, 0, 1], [0, 0, 0]])
    assert np.array_equal(undo_one_hot(numbers_or_rows(several)), several.astype(bool))
