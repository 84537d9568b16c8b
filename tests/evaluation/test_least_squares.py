"""`LeastSquares` against ridge regression of scikit-learn and the solver of big_vision."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

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
    z = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-5)
    reference = Ridge(alpha=l2, solver="svd").fit(z, 2.0 * np.eye(CLASSES)[labels] - 1)
    np.testing.assert_allclose(features @ kernel + bias, reference.predict(z), rtol=0, atol=1e-9)


def test_chunks_other_rows_and_constant_features_do_not_change_the_solution(monkeypatch):
    """90 rows of 200, read 7 at a time, against the same 90 rows alone, read at once."""
    features, labels = problem(200)
    rows = np.random.default_rng(0).permutation(200)[:90]
    kernel, bias = LeastSquares(features[rows], labels[rows], CLASSES).solve(1.0)
    logits = features @ kernel + bias
    monkeypatch.setattr(least_squares, "_CHUNK", 7)
    wider = np.concatenate([features, np.full((200, 2), 7.0)], axis=1)
    for given in (features, wider):
        found, constant = LeastSquares(given, labels, CLASSES, rows).solve(1.0)
        np.testing.assert_allclose(found[:WIDTH], kernel, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(given @ found + constant, logits, atol=1e-9)


@pytest.mark.parametrize("shots", [1, 5, 10])
def test_balanced_classes_are_predicted_as_by_big_vision(shots):
    """big_vision's slightly regularised bias and the free bias choose the same classes."""
    features, labels = problem(CLASSES * shots)
    test, _ = problem(500)
    kernel, bias = LeastSquares(features, labels, CLASSES).solve(2.0**10)
    expected = logits_of_big_vision(features, labels, test, 2.0**10)
    assert np.array_equal((test @ kernel + bias).argmax(axis=1), expected.argmax(axis=1))
