"""k nearest neighbours against the formulas of DINO and against scikit-learn."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from keras_vit import ConfigError
from keras_vit.evaluation import nearest_neighbours
from tests.helpers import normal


def clusters(count, seed):
    """Features of four overlapping classes, and their labels."""
    labels = np.arange(count) % 4
    return np.eye(4, 8)[labels] + 0.8 * normal(count, 8, seed=seed), labels


def dino(features, labels, queries, truth, k, temperature):
    """The accuracy by the weighted votes of DINO's `eval_knn.py`, query by query."""
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    right = 0
    for query, label in zip(queries, truth, strict=True):
        similarity = features @ (query / np.linalg.norm(query))
        nearest = np.argsort(similarity)[::-1][:k]
        votes = [
            np.exp(similarity[nearest][labels[nearest] == c] / temperature).sum() for c in range(4)
        ]
        right += np.argmax(votes) == label
    return right / len(queries)


def test_the_accuracy_is_that_of_dinos_votes():
    """For several k at once, and with more queries than one chunk holds."""
    train, test = clusters(200, 0), clusters(1100, 1)
    actual = nearest_neighbours(train, test, k=(1, 5, 50))
    for k, accuracy in actual.items():
        assert accuracy == dino(*train, *test, k, 0.07)


def test_one_neighbour_agrees_with_scikit_learn():
    """k = 1 with the cosine distance."""
    train, test = clusters(200, 0), clusters(100, 1)
    expected = KNeighborsClassifier(1, metric="cosine").fit(*train).score(*test)
    assert nearest_neighbours(train, test, k=(1,)) == {1: expected}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": (201,)}, "numbers from 1 to 200"),
        ({"k": ()}, "numbers from 1 to 200"),
        ({"temperature": 0}, "temperature=0"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    """The message names the value found and the values expected."""
    with pytest.raises(ConfigError, match=message):
        nearest_neighbours(clusters(200, 0), clusters(10, 1), **options)
    with pytest.raises(ConfigError, match="width 8, the test features 7"):
        nearest_neighbours(clusters(200, 0), (normal(4, 7), [0, 1, 2, 3]))
