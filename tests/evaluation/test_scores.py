"""`evaluate`: every measure against scikit-learn or its formula, for every form of data."""

import json

import keras
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, top_k_accuracy_score

from keras_vit import evaluate
from keras_vit.evaluation import metrics
from tests.plain import normal


def softmax(logits):
    exp = np.exp(logits.astype("float64") - logits.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


def calibration_error(probabilities, classes, bins):
    """The expected calibration error of Guo et al. 2017, Eq. 3, bin by bin."""
    confidence, hits = probabilities.max(axis=1), probabilities.argmax(axis=1) == classes
    error = 0.0
    for m in range(1, bins + 1):
        inside = (confidence > (m - 1) / bins) & (confidence <= m / bins)
        error += abs((hits[inside] - confidence[inside]).sum()) / len(hits)
    return error


class Data(keras.utils.PyDataset):
    """Arrays in batches of eight; keyword arguments become attributes."""

    def __init__(self, *arrays, **attributes):
        super().__init__()
        vars(self).update(attributes, arrays=arrays)

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return tuple(array[index * 8 : (index + 1) * 8] for array in self.arrays)


def native(*arrays):
    """The data set type of the backend, tf.data or DataLoader."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices(arrays).batch(8)
    import torch

    tensors = torch.utils.data.TensorDataset(*map(torch.from_numpy, arrays))
    return torch.utils.data.DataLoader(tensors, batch_size=8)


@pytest.fixture(scope="module")
def expected(model, images, classes):
    return evaluate(model, (images, classes), batch_size=8, prepared=True)


def test_measures_agree_with_scikit_learn(expected, logits, classes):
    """Top-1, top-5, loss, and count and accuracy per class."""
    probabilities = softmax(logits)
    predicted = probabilities.argmax(axis=1)
    every = list(range(7))
    assert (expected.task, expected.count, expected.left_out) == ("single_label", 23, 0)
    error = calibration_error(probabilities, classes, 15)
    assert np.isclose(expected.calibration_error, error, rtol=1e-5)
    assert expected.top1 == accuracy_score(classes, predicted)
    assert expected.top5 == top_k_accuracy_score(classes, logits, k=5, labels=every)
    assert np.isclose(expected.loss, log_loss(classes, probabilities, labels=every), rtol=1e-6)
    matrix = confusion_matrix(classes, predicted, labels=every)
    assert expected.class_counts == tuple(matrix.sum(axis=1))
    assert expected.class_accuracy == tuple(matrix.diagonal() / matrix.sum(axis=1))
    assert json.loads(json.dumps(expected.to_dict()))["count"] == 23


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_the_calibration_error_follows_its_equation(bins):
    """The weighted gap between confidence and accuracy over bins of equal width."""
    shares, classes = softmax(3 * normal(500, 4)), np.random.default_rng(0).integers(0, 4, 500)
    found = metrics.calibration_error(shares.max(axis=1), shares.argmax(axis=1) == classes, bins)
    assert np.isclose(found, calibration_error(shares, classes, bins), rtol=1e-9)


@pytest.mark.on_backend("tensorflow", "torch")
@pytest.mark.parametrize(
    "make",
    [
        Data,
        native,
        lambda x, y: Data(x, np.eye(7, dtype="float32")[y]),
        lambda x, y: ((x[k : k + 8], y[k : k + 8]) for k in (0, 8, 16)),
    ],
    ids=["PyDataset", "native", "one-hot", "generator"],
)
def test_every_form_of_data_gives_the_same_scores(make, model, images, classes, expected):
    actual = evaluate(model, make(images, classes), batch_size=8)
    assert np.isclose(actual.loss, expected.loss, rtol=1e-5)
    assert (actual.top1, actual.top5, actual.count) == (expected.top1, expected.top5, 23)


def test_lists_of_labels_are_scored_as_reassessed_labels(model, images, logits):
    """A prediction in the image's list is right; images with an empty list are left out."""
    rng = np.random.default_rng(3)
    real = [np.flatnonzero(rng.random(7) < 0.2).tolist() for _ in images]
    assert [] in real
    predictions = np.argmax(logits, -1)
    is_right = [guess in real[k] for k, guess in enumerate(predictions) if real[k]]
    rate, count = np.mean(is_right), len(is_right)
    actual = evaluate(model, (images, real), batch_size=8, prepared=True)
    assert (actual.top1, actual.count, actual.left_out) == (rate, count, 23 - count)
    mass = [softmax(logits)[k, classes].sum() for k, classes in enumerate(real) if classes]
    assert np.isclose(actual.loss, -np.log(mass).mean(), rtol=1e-5)
    beside = evaluate(model, (images, predictions), real_labels=real, batch_size=8, prepared=True)
    assert (beside.top1, beside.real, beside.real_count) == (1, rate, count)


def test_evaluate_compares_only_the_classes_of_a_subset(model):
    """As for ImageNet-A and -R: other logits are ignored; labels are indices in the subset."""
    images, labels = normal(20, 16, 16, 3), np.arange(20) % 3
    logits = model.predict(images, verbose=0)[:, [4, 1, 3]]
    by_number = evaluate(model, (images, labels), classes=[4, 1, 3], prepared=True)
    assert by_number.top1 == accuracy_score(labels, logits.argmax(axis=1))
    assert abs(by_number.loss - log_loss(labels, softmax(logits))) < 1e-5
    assert (len(by_number.class_counts), by_number.top5) == (3, 1)
    assert evaluate(model, (images, labels), classes=["e", "b", "d"], prepared=True) == by_number
    named = Data(images, labels, class_names=("e", "b", "d"))
    assert abs(evaluate(model, named, classes=[1, 3, 4]).loss - by_number.loss) < 1e-6
