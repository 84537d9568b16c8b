"""The linear probe, few-shot accuracy, and a probe that becomes the head of a model."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from keras_vit.errors import ConfigError
from keras_vit.evaluation import few_shot, linear_probe
from keras_vit.evaluation.least_squares import LeastSquares
from tests.helpers import random_tiny
from tests.plain import normal


def clusters(count, seed=0, spread=1.0, width=16, classes=3):
    """Features scattered around one centre per class, and their labels."""
    labels = np.random.default_rng(seed).integers(0, classes, count)
    return normal(classes, width, seed=5)[labels] + spread * normal(count, width, seed=seed), labels


def test_the_probe_chooses_the_l2_that_is_best_on_the_held_out_share():
    """Noisy features get a stronger l2 than cleanly separated features."""
    strengths = (1e-3, 1e2, 1e5)
    chosen = []
    for spread in (0.01, 4.0):
        features, labels = clusters(60, spread=spread, width=40)
        probe = linear_probe(features, labels, l2=strengths)
        chosen.append(probe.l2)
        again = linear_probe(features, labels, l2=probe.l2)
        assert np.array_equal(again.kernel, probe.kernel)  # fitted on all images
        assert again.validation_accuracy is None
        assert 0 <= probe.validation_accuracy <= 1
    assert chosen[0] < chosen[1]


def test_a_probe_classifies_separable_classes_without_error():
    """New features of well separated classes; labels are numbers or one-hot rows."""
    features, labels = clusters(90, spread=0.2)
    test = clusters(50, seed=1, spread=0.2)
    assert linear_probe(features, labels).accuracy(*test) == 1
    assert linear_probe(features, np.eye(3)[labels], l2=1.0).accuracy(*test) == 1


def test_a_multi_label_probe_scores_as_scikit_learn():
    """A class of its own for each label: predictions above 0, and mean average precision."""
    rng = np.random.default_rng(0)
    labels = rng.random((120, 4)) < 0.3
    features = labels @ rng.standard_normal((4, 12)) + 0.5 * rng.standard_normal((120, 12))
    probe = linear_probe(features[:80], labels[:80].astype("float32"))
    scores = features[80:] @ probe.kernel + probe.bias
    assert np.array_equal(probe.predict(features[80:]), scores > 0)
    expected = average_precision_score(labels[80:], scores)
    assert probe.accuracy(features[80:], labels[80:]) == pytest.approx(expected, abs=1e-12)
    assert 0.8 < probe.validation_accuracy <= 1
    with pytest.raises(ConfigError, match=r"shape \(40,\); expected \(40, 4\)"):
        probe.accuracy(features[80:], labels[80:].argmax(axis=1))
    with pytest.raises(ConfigError, match="one class per image"):
        few_shot((features, labels), (features, labels))


def test_features_keep_multi_label_rows_and_their_probe_becomes_a_model(images):
    """Of zeros and ones in any type; the model answers with every label above one half."""
    from keras_vit.evaluation import features

    model = random_tiny()
    labels = np.random.default_rng(0).integers(0, 2, (23, 3)).astype("float32")
    actual = features(model, (images, labels), batch_size=8, prepared=True)
    assert np.array_equal(actual.labels, labels.astype(bool))
    probe = linear_probe(*actual, l2=10.0)
    pictures = np.random.default_rng(1).integers(0, 256, (6, 16, 16, 3), "uint8")
    answers = probe.build_model(model, class_names=("a", "b", "c")).classify(pictures)
    predicted = probe.predict(features(model, pictures).values)
    assert [{name for name, _ in each} for each in answers] == [
        {"abc"[k] for k in np.flatnonzero(row)} for row in predicted
    ]


@pytest.mark.parametrize("fields", [{}, {"num_classes": 0, "dtype": "mixed_bfloat16"}])
def test_a_probe_becomes_the_head_of_an_ordinary_classifier(fields, images):
    """The classifier's logits are the probe's; the model that it was made from is unchanged."""
    from keras_vit.evaluation import features

    model = random_tiny(**fields)
    classes = np.arange(23) % 3
    actual = features(model, (images, classes), batch_size=23, prepared=True)
    probe = linear_probe(*actual, l2=10.0)
    classifier = probe.build_model(model, class_names=("a", "b", "c"))
    logits = features(classifier, images, "logits", batch_size=23, prepared=True).values
    expected = actual.values @ probe.kernel + probe.bias
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
    assert np.array_equal(logits.argmax(axis=1), probe.predict(actual.values))
    assert classifier.class_names == ("a", "b", "c")
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
