"""The linear probe, few-shot accuracy, and a probe that becomes the head of a model."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from keras_vit.errors import ConfigError
from keras_vit.evaluation import features, few_shot, linear_probe
from keras_vit.evaluation.least_squares import LeastSquares
from tests.helpers import random_tiny
from tests.plain import normal


def clusters(count, seed=0, spread=1.0, width=16, classes=3):
    """Features scattered around one centre per class, and their labels."""
    labels = np.random.default_rng(seed).integers(0, classes, count)
    return normal(classes, width, seed=5)[labels] + spread * normal(count, width, seed=seed), labels


def test_the_probe_chooses_the_l2_that_is_best_on_the_held_out_share():
    """Noisy features get a stronger l2 than cleanly separated features."""
    chosen = []
    for spread in (0.01, 4.0):
        values, labels = clusters(60, spread=spread, width=40)
        probe = linear_probe(values, labels, l2=(1e-3, 1e2, 1e5))
        chosen.append(probe.l2)
        again = linear_probe(values, labels, l2=probe.l2)
        assert np.array_equal(again.kernel, probe.kernel)  # fitted on all images
    assert chosen[0] < chosen[1]


def test_a_probe_classifies_separable_classes_without_error():
    """New features of well separated classes; labels are numbers or one-hot rows."""
    values, labels = clusters(90, spread=0.2)
    for given, options in ((labels, {}), (np.eye(3)[labels], {"l2": 1.0})):
        assert linear_probe(values, given, **options).accuracy(*clusters(50, 1, 0.2)) == 1
    with pytest.raises(ConfigError, match="lists of one length"):
        linear_probe([[1.0, 2.0], [1.0]], [0, 1])


def test_a_multi_label_probe_scores_as_scikit_learn():
    """A class of its own for each label: predictions above 0, and mean average precision."""
    rng = np.random.default_rng(0)
    labels = rng.random((120, 4)) < 0.3
    values = labels @ rng.standard_normal((4, 12)) + 0.5 * rng.standard_normal((120, 12))
    probe = linear_probe(values[:80], labels[:80].astype("float32"))
    scores = values[80:] @ probe.kernel + probe.bias
    assert np.array_equal(probe.predict(values[80:]), scores > 0)
    expected = average_precision_score(labels[80:], scores)
    assert probe.accuracy(values[80:], labels[80:]) == pytest.approx(expected, abs=1e-12)


FIELDS = ({}, {"num_classes": 0, "dtype": "mixed_bfloat16"})
SINGLE, SEVERAL = np.arange(23) % 3, np.random.default_rng(0).integers(0, 2, (23, 3))


@pytest.mark.parametrize("labels", [SINGLE, SEVERAL.astype("float32")], ids=["one", "several"])
@pytest.mark.parametrize("fields", FIELDS, ids=["float32", "mixed"])
def test_a_probe_becomes_the_head_of_an_ordinary_classifier(fields, labels, images):
    """The classifier's logits are the probe's; the model that it was made from is unchanged."""
    model = random_tiny(**fields)
    actual = features(model, (images, labels), batch_size=23, prepared=True)
    assert np.array_equal(actual.labels, labels)
    assert (actual.labels.dtype == bool) == (labels.ndim == 2)
    probe = linear_probe(*actual, l2=10.0)
    classifier = probe.build_model(model, class_names=("a", "b", "c"))
    logits = features(classifier, images, "logits", batch_size=23, prepared=True).values
    expected = actual.values @ probe.kernel + probe.bias
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
    wanted = logits > 0 if labels.ndim == 2 else logits.argmax(axis=1)
    assert np.array_equal(probe.predict(actual.values), wanted)
    assert (classifier.task, classifier.class_names) == (probe.task, ("a", "b", "c"))
    assert model.config.num_classes == fields.get("num_classes", 5)


def test_few_shot_takes_the_images_that_big_vision_takes():
    """The first k images of one permutation per class and seed, and l2 = 1024."""
    train, test = clusters(200), clusters(100, seed=1)
    actual = few_shot(train, test, shots=(1, 5), num_seeds=2)
    assert few_shot(train, test, shots=5, num_seeds=2) == {5: actual[5]}
    expected = {1: [], 5: []}
    for seed in range(2):
        rng = np.random.default_rng(seed)
        order = [rng.permutation(np.where(train[1] == k)[0]) for k in range(3)]
        for shots, accuracies in expected.items():
            rows = np.concatenate([indices[:shots] for indices in order])
            kernel, bias = LeastSquares(train[0][rows], train[1][rows], 3).solve(1024.0)
            predicted = (test[0] @ kernel + bias).argmax(axis=1)
            accuracies.append(float((predicted == test[1]).mean()))
    assert actual == expected
    assert np.mean(actual[5]) > np.mean(actual[1])
