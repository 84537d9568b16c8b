"""Leave-one-out scores against explicit refits, and what is made of them."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, r2_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from keras_vit.evaluation import leave_one_out as loo
from keras_vit.evaluation.least_squares import LeastSquares, make_targets
from keras_vit.models.losses import compute_probabilities


def draw(count, width, classes=3, seed=0, noise=2.0):
    """Features around one centre per class, and labels."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(1).standard_normal((classes, width))
    labels = rng.permutation(np.arange(count) % classes)
    return centres[labels] + noise * rng.standard_normal((count, width)), labels


def draw_rows(count, width, classes=3, seed=0, noise=1.0):
    """Multi-label: an image is moved along the directions of its classes."""
    rng = np.random.default_rng(seed)
    directions = np.random.default_rng(1).standard_normal((classes, width))
    labels = rng.random((count, classes)) < np.linspace(0.15, 0.5, classes)
    labels[:2], labels[2:4] = True, False
    return labels @ directions + noise * rng.standard_normal((count, width)), labels


def draw_numbers(count, width):
    """Regression: targets of one scale, as far from the first features as the noise."""
    values = np.random.default_rng(0).standard_normal((count, width))
    targets = values[:, :3] + 0.5 * np.random.default_rng(1).standard_normal((count, 3))
    return values, (targets - targets.mean(axis=0)) / targets.std(axis=0)


@pytest.mark.parametrize("make", [draw, draw_rows, draw_numbers])
@pytest.mark.parametrize("width", [6, 30, 60])
def test_scores_equal_those_of_a_refit_without_each_image(make, width):
    """scikit-learn's Ridge, fitted as often as there are images, at the scales of all images. The
    features and the l2 with the least error are chosen."""
    features, labels = make(30, width)
    solver, targets = LeastSquares(features, labels, 3), make_targets(labels, 3)
    z = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-5)
    for l2 in (0.1, 10.0):
        ridge = Ridge(alpha=l2, solver="cholesky")
        expected = cross_val_predict(ridge, z, targets, cv=LeaveOneOut())
        np.testing.assert_allclose(
            loo.leave_one_out(solver, features, labels, l2), expected, atol=1e-6
        )
    noise = np.random.default_rng(2).standard_normal(features.shape)
    fit = loo.choose({"noise": noise, "signal": features}, labels, 3)
    assert (fit.name, fit.l2) == ("signal", fit.l2) == min(fit.errors, key=fit.errors.get)
    errors = (loo.leave_one_out(solver, features, labels, fit.l2) - targets) ** 2
    assert fit.errors[fit.name, fit.l2] == pytest.approx(errors.mean())


def test_the_score_is_that_of_scikit_learn():
    """Multi-label, equal estimates rank as one, and a class without images does not count."""
    features, labels = draw_rows(50, 4)
    labels[:, 1] = False
    estimates = np.round(features[:, :3])
    found = [average_precision_score(labels[:, k], estimates[:, k]) for k in (0, 2)]
    assert loo.score(estimates, labels) == pytest.approx(np.mean(found), abs=1e-12)
    values, targets = draw_numbers(30, 6)
    assert loo.score(values[:, :3], targets) == pytest.approx(r2_score(targets, values[:, :3]))


def test_sigmoids_of_each_class_are_calibrated():
    """Equal to scikit-learn's logistic regression on Platt's smoothed targets; and finite where a
    class is separated from the others."""
    features, labels = draw_rows(80, 6)
    scores = loo.leave_one_out(LeastSquares(features, labels, 3), features, labels, 1.0)
    scores = np.concatenate([scores, np.where(labels[:, :1], 1.0, -1.0)], axis=1)
    labels = np.concatenate([labels, labels[:, :1]], axis=1)
    factor, offset = loo.platt_scaling(scores, labels)
    for k in range(4):
        ones, zeros = labels[:, k].sum(), (~labels[:, k]).sum()
        wanted = np.where(labels[:, k], (ones + 1) / (ones + 2), 1 / (zeros + 2))
        twice, answers = np.tile(scores[:, k], 2)[:, None], np.repeat([1, 0], 80)
        theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
        theirs.fit(twice, answers, np.concatenate([wanted, 1 - wanted]))
        assert factor[k] == pytest.approx(theirs.coef_[0, 0], rel=1e-4)
        assert offset[k] == pytest.approx(theirs.intercept_[0], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("count", [90, 240])
def test_the_scale_has_the_least_cross_entropy(count):
    """Of targets that leave a doubt to the other two classes; scores that are all right have the
    mean confidence of Laplace's rule of succession, (n + 1) / (n + 2)."""
    features, labels = draw(count, 6)
    scores = loo.leave_one_out(LeastSquares(features, labels, 3), features, labels, 1.0)
    hot = np.eye(3)[labels]
    wanted = np.where(hot == 1, count + 1, 0.5) / (count + 2)

    def loss(scale):
        return -(wanted * np.log(compute_probabilities(scale * scores))).sum(axis=1).mean()

    scale = loo.calibrating_scale(scores, labels)
    assert loss(scale) < min(loss(0.98 * scale), loss(1.02 * scale))
    right = 2 * hot - 1
    confidence = compute_probabilities(loo.calibrating_scale(right, labels) * right)[hot == 1]
    assert confidence.mean() == pytest.approx((count + 1) / (count + 2), abs=1e-6)


@pytest.mark.parametrize(("make", "width"), [(draw, 10), (draw_rows, 8)])
def test_intervals_hold_the_true_score(make, width):
    """In at least 90 of 100 draws; the truth is the score of that draw's classifier."""
    held = 0
    for seed in range(100):
        features, labels = make(120, width, seed=seed, noise=2.0)
        other = np.random.default_rng(1000 + seed).standard_normal((120, width))
        fit = loo.choose({"features": features, "noise": other, "some": features[:, :5]}, labels, 3)
        test, truth = make(5000, width, seed=5000 + seed, noise=2.0)
        test = test[:, :5] if fit.name == "some" else test
        low, high = loo.compute_interval(loo.score(fit.unseen, labels), labels)
        held += low <= loo.score(test @ fit.kernel + fit.bias, truth) <= high
    assert held >= 90


def test_a_learning_curve_rises_and_foresees_more_images():
    """The gain of doubling the images is near the measured one, and a gain is at most the errors
    that are left: a steep curve ends above its own power law, another has no error."""
    assert loo.predict_gain([(25, 0.2), (50, 0.3), (75, 0.5), (100, 0.99)], 10_000) <= 0.01 + 1e-12
    assert loo.predict_gain([(25, 0.5), (50, 0.7), (75, 0.9), (100, 1.0)], 100) == 0
    features, labels = draw(400, 20, noise=3.0)
    half, truth = features[:200], labels[:200]
    fit = loo.choose({"x": half}, truth, 3)
    accuracy = float((fit.predictions.argmax(axis=1) == truth).mean())
    curve = loo.learning_curve(half, truth, 3, fit.l2, accuracy)
    assert [round(count, -1) for count, _ in curve] == [50, 100, 150, 200]
    assert curve[0][1] < curve[-1][1]
    whole = loo.choose({"x": features}, labels, 3)
    measured = float((whole.predictions.argmax(axis=1) == labels).mean()) - accuracy
    assert abs(loo.predict_gain(curve, 200) - measured) < 0.06
