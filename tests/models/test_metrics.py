"""Metrics of Keras that read probabilities, in `compile` of a model that returns logits."""

import warnings

import keras
import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics as sklearn_metrics

from tests.helpers import normal, random_tiny, to_numpy

IMAGES = normal(40, 16, 16, 3)
M = keras.metrics
BY_OUTPUT = {"head": ["f1_score"]}
READ_PROBABILITIES = {
    "AUC": {"multi_label": True},
    "BinaryAccuracy": {},
    "BinaryIoU": {},
    "F1Score": {"average": "macro"},
    "FBetaScore": {"beta": 2.0, "threshold": 0.3},
    "FalseNegatives": {},
    "FalsePositives": {"thresholds": 0.3},
    "Precision": {"class_id": 1},
    "PrecisionAtRecall": {"recall": 0.6},
    "Recall": {"thresholds": [0.2, 0.4]},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.6},
    "SpecificityAtSensitivity": {"sensitivity": 0.6},
    "TrueNegatives": {},
    "TruePositives": {},
}


def spread(**fields):
    """A model whose logits differ between images, and the logits."""
    model = random_tiny(**fields)
    head = model.get_layer("head")
    kernel = np.random.default_rng(0).normal(0, 1, head.kernel.shape)
    head.kernel.assign(kernel)
    head.bias.assign(-np.median(to_numpy(model(IMAGES)), axis=0))
    return model, to_numpy(model(IMAGES)).astype("float64")


def hot(classes, count=40):
    return np.eye(classes, dtype="float32")[np.random.default_rng(1).integers(0, classes, count)]


def scores(model, labels, **compiled):
    """The metrics of `evaluate`; a doubt about a metric is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*gets the logits")
        model.compile("sgd", **compiled)
        return model.evaluate(IMAGES, labels, verbose=0, return_dict=True, batch_size=16)


def directly(metric, labels, predictions):
    for rows in range(0, 40, 16):
        part = slice(rows, rows + 16)
        metric.update_state(labels[part], predictions[part].astype("float32"))
    return to_numpy(metric.result())


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("loss", ["categorical_crossentropy", "binary_crossentropy"])
def test_metrics_of_probabilities_are_keras_s_own_of_probabilities(classes, loss):
    """Softmax for one class per image; sigmoid for one class, and by a binary cross-entropy."""
    if classes == 1:
        loss = "binary_crossentropy"
    model, logits = spread(num_classes=classes)
    labels = hot(3)[:, :classes]
    chosen = {n: o for n, o in READ_PROBABILITIES.items() if classes > 1 or n != "Precision"}
    made = [getattr(M, name)(**options, name=name) for name, options in chosen.items()]
    actual = scores(model, labels, loss=loss, metrics=made)
    by_class = loss == "binary_crossentropy"
    for name, options in chosen.items():
        sigmoid = by_class or name == "BinaryAccuracy"
        shares = expit(logits) if sigmoid else softmax(logits, axis=1)
        expected = directly(getattr(M, name)(**options), labels, shares)
        np.testing.assert_allclose(actual[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_scores_of_one_class_are_those_of_scikit_learn():
    model, logits = spread(num_classes=1)
    shares = expit(logits[:, 0])
    labels = (np.random.default_rng(0).uniform(size=40) < shares).astype("float32")
    actual = scores(
        model,
        labels[:, None],
        loss="binary_crossentropy",
        metrics=["accuracy", "binary_accuracy", M.Precision(name="precision"), "recall"],
        weighted_metrics=[M.AUC(num_thresholds=2000, name="area")],
    )
    taken = shares > 0.5
    area = sklearn_metrics.roc_auc_score(labels, shares)
    np.testing.assert_allclose(actual["accuracy"], (taken == labels).mean(), rtol=1e-6)
    np.testing.assert_allclose(actual["binary_accuracy"], (taken == labels).mean(), rtol=1e-6)
    expected = sklearn_metrics.precision_score(labels, taken)
    np.testing.assert_allclose(actual["precision"], expected, rtol=1e-6)
    expected = sklearn_metrics.recall_score(labels, taken)
    np.testing.assert_allclose(actual["recall"], expected, rtol=1e-6)
    np.testing.assert_allclose(actual["area"], area, atol=2e-3)


@pytest.mark.parametrize(
    "given",
    [
        "f1_score",
        M.F1Score,
        {"class_name": "F1Score", "config": {}},
        [[M.F1Score()]],
        BY_OUTPUT,
    ],
    ids=["name", "class", "dict", "lists", "by_output"],
)
def test_every_form_of_a_metric_is_read_the_same(given):
    """As `compile` of Keras takes it."""
    model, logits = spread(num_classes=3, thresholds=0.5)
    labels = (hot(3) + hot(3)[::-1]).clip(0, 1)
    metrics = given if isinstance(given, list) or given == BY_OUTPUT else [given]
    actual = scores(model, labels, loss="auto", metrics=metrics)
    expected = directly(M.F1Score(), labels, expit(logits))
    found = [value for name, value in actual.items() if "loss" not in name]
    np.testing.assert_allclose(to_numpy(found[0]), expected, rtol=1e-5)


def test_metrics_with_arguments_for_logits_are_kept():
    """Keras says of `Precision` that a threshold of 0 is for logits."""
    model, logits = spread(num_classes=1)
    labels = hot(3)[:, :1]
    made = [
        M.AUC(from_logits=True, name="auc"),
        M.Precision(thresholds=0.0, name="precision"),
        M.BinaryAccuracy(threshold=0.0, name="binary"),
    ]
    actual = scores(model, labels, loss="auto", metrics=made)
    taken = logits > 0
    expected = sklearn_metrics.precision_score(labels[:, 0], taken[:, 0])
    np.testing.assert_allclose(actual["precision"], expected, rtol=1e-6)
    np.testing.assert_allclose(actual["binary"], (taken == labels).mean(), rtol=1e-6)
    expected = directly(M.AUC(), labels, expit(logits))
    np.testing.assert_allclose(actual["auc"], expected, rtol=1e-5)


def test_a_model_of_probabilities_keeps_the_metrics_as_they_are():
    model, shares = spread(num_classes=3, classifier_activation="softmax")
    made = M.F1Score(average="macro", name="f1")
    actual = scores(model, hot(3), loss="categorical_crossentropy", metrics=[made])
    expected = directly(M.F1Score(average="macro"), hot(3), shares)
    np.testing.assert_allclose(actual["f1"], expected, rtol=1e-5)


class OwnOfLogits(M.F1Score):
    """A user's metric, which applies the sigmoid itself."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(y_true, keras.ops.sigmoid(y_pred), sample_weight)


class OwnName(M.Precision):
    """A user's metric, whose predictions Keras's code reads."""


def test_a_class_of_the_user_is_never_changed():
    """One that inherits what Keras does with predictions causes a warning."""
    model, logits = spread(num_classes=3, thresholds=0.5)
    own = OwnOfLogits(name="own")
    actual = scores(model, hot(3), loss="auto", metrics=[own])
    expected = directly(M.F1Score(), hot(3), expit(logits))
    np.testing.assert_allclose(to_numpy(actual["own"]), expected, rtol=1e-5)
    with pytest.warns(UserWarning, match="'own_name' gets the logits .* which OwnName inherits"):
        model.compile("sgd", "auto", metrics=[OwnName()])
    actual = model.evaluate(IMAGES, hot(3), verbose=0, return_dict=True)
    np.testing.assert_allclose(
        actual["own_name"], directly(M.Precision(), hot(3), logits), rtol=1e-5
    )


def test_a_saved_model_has_the_same_metrics_and_trains_on(tmp_path):
    """A `.keras` file keeps them behind the activation."""
    model, _ = spread(num_classes=3)
    made = [M.AUC(multi_label=True, num_labels=3, name="auc"), M.F1Score(name="f1")]
    before = scores(model, hot(3), loss="categorical_crossentropy", metrics=made)
    model.save(tmp_path / "x.keras")
    again = keras.saving.load_model(tmp_path / "x.keras")
    after = again.evaluate(IMAGES, hot(3), verbose=0, return_dict=True, batch_size=16)
    assert set(after) == set(before)
    for name, value in before.items():
        np.testing.assert_allclose(to_numpy(after[name]), to_numpy(value), rtol=1e-5)
    history = again.fit(IMAGES, hot(3), verbose=0, epochs=2).history
    assert 0 <= history["auc"][1] <= 1


def test_the_user_s_object_holds_the_result():
    """`compile` keeps the object behind the activation, so that `result` of it answers."""
    model, _ = spread(num_classes=3)
    mine = M.AUC(name="auc")
    actual = scores(model, hot(3), loss="categorical_crossentropy", metrics=[mine])
    np.testing.assert_allclose(to_numpy(mine.result()), actual["auc"], rtol=1e-6)


def test_metrics_by_which_probabilities_and_logits_rank_alike_are_kept():
    model, logits = spread(num_classes=3)
    labels = hot(3).argmax(1)
    made = ["accuracy", M.SparseTopKCategoricalAccuracy(2, name="top2")]
    actual = scores(model, labels, loss="sparse_categorical_crossentropy", metrics=made)
    np.testing.assert_allclose(actual["accuracy"], (logits.argmax(1) == labels).mean(), rtol=1e-6)
    among_two = (np.argsort(-logits, axis=1)[:, :2] == labels[:, None]).any(axis=1).mean()
    np.testing.assert_allclose(actual["top2"], among_two, rtol=1e-6)
