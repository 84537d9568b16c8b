"""`LeastSquares` against ridge regression of scikit-learn and the solver of big_vision."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeClassifier

from keras_vit.evaluation import least_squares
from keras_vit.evaluation.least_squares import LeastSquares
from tests.plain import normal

WIDTH, CLASSES = 12, 4


def problem(count):
    """Features of unequal scales and their labels; every class occurs."""
    rng = np.random.default_rng(count)
    scales = 10 ** rng.uniform(-2, 2, WIDTH)
    labels = np.arange(count) % CLASSES
    centres = 0.3 * normal(CLASSES, WIDTH, seed=9)
    return ((normal(count, WIDTH, seed=count) + centres[labels]) * scales + 3 * scales), labels


def logits_of_big_vision(features, labels, test, l2):
    """`evaluators/fewshot_lsr.py`, where the bias is the weight of a constant feature of 100."""

    def with_bias(x):
        return np.pad((x - mean) / std, ((0, 0), (0, 1)), constant_values=100.0)

    mean, std = features.mean(axis=0), features.std(axis=0) + 1e-5
    x, y = with_bias(features), 2.0 * np.eye(CLASSES)[labels] - 1
    weights = np.linalg.solve(x.T @ x + l2 * np.eye(WIDTH + 1), x.T @ y)
    return with_bias(test) @ weights


@pytest.mark.parametrize("l2", [1e-3, 1.0, 2.0**10])
@pytest.mark.parametrize("count", [8, 12, 200])
def test_the_solution_is_the_ridge_regression_of_scikit_learn(count, l2):
    """With fewer images than features (8 of 12), equally many, and more."""
    features, labels = problem(count)
    kernel, bias = LeastSquares(features, labels, CLASSES).solve(l2)
    mean, std = features.mean(axis=0), features.std(axis=0) + 1e-5
    z = (features - mean) / std
    reference = Ridge(alpha=l2, solver="svd").fit(z, 2.0 * np.eye(CLASSES)[labels] - 1)
    actual = features @ kernel + bias
    np.testing.assert_allclose(actual, reference.predict(z), rtol=0, atol=1e-9)
    classifier = RidgeClassifier(alpha=l2, solver="svd").fit(z, labels)
    assert np.array_equal(actual.argmax(axis=1), classifier.predict(z))


def test_chunks_and_a_selection_of_rows_do_not_change_the_solution(monkeypatch):
    """90 rows of 200, read 7 at a time, against the same 90 rows alone, read at once."""
    features, labels = problem(200)
    rows = np.random.default_rng(0).permutation(200)[:90]
    whole = LeastSquares(features[rows], labels[rows], CLASSES).solve(1.0)
    monkeypatch.setattr(least_squares, "_CHUNK", 7)
    parts = LeastSquares(features, labels, CLASSES, rows).solve(1.0)
    for actual, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shots", [1, 5, 10])
def test_balanced_classes_are_predicted_as_by_big_vision(shots):
    """big_vision's slightly regularised bias and the free bias choose the same classes."""
    features, labels = problem(CLASSES * shots)
    test, _ = problem(500)
    kernel, bias = LeastSquares(features, labels, CLASSES).solve(2.0**10)
    expected = logits_of_big_vision(features, labels, test, 2.0**10)
    actual = test @ kernel + bias
    assert np.array_equal(actual.argmax(axis=1), expected.argmax(axis=1))


def test_constant_features_do_not_change_the_predictions():
    """Two constant features are added; the other kernel rows and the logits stay."""
    features, labels = problem(40)
    kernel, bias = LeastSquares(features, labels, CLASSES).solve(1.0)
    dead = np.concatenate([features, np.full((40, 2), 7.0)], axis=1)
    actual, actual_bias = LeastSquares(dead, labels, CLASSES).solve(1.0)
    np.testing.assert_allclose(actual[:WIDTH], kernel, rtol=1e-9)
    np.testing.assert_allclose(dead @ actual + actual_bias, features @ kernel + bias, atol=1e-9)
