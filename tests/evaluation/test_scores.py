"""`evaluate`: every measure against scikit-learn or its formula, for every form of data."""

import json
import math

import keras
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, top_k_accuracy_score

from keras_vit import evaluate
from keras_vit.errors import ConfigError
from keras_vit.evaluation import metrics
from keras_vit.evaluation.scores import _rank_best
from tests.helpers import assert_close, random_tiny
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
        if inside.any():
            gap = hits[inside].mean() - confidence[inside].mean()
            error += inside.mean() * abs(gap)
    return error


class Data(keras.utils.PyDataset):
    """Arrays in batches of `size`; keyword arguments become attributes."""

    def __init__(self, images, labels, size, **attributes):
        super().__init__()
        self.images, self.labels, self.size = images, labels, size
        vars(self).update(attributes)

    def __len__(self):
        return math.ceil(len(self.images) / self.size)

    def __getitem__(self, index):
        part = slice(index * self.size, (index + 1) * self.size)
        return self.images[part], self.labels[part]


def native(images, labels, size):
    """The data set type of the backend: tf.data, DataLoader, or a list of JAX arrays."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices((images, labels)).batch(size)
    if keras.backend.backend() == "torch":
        import torch

        tensors = torch.utils.data.TensorDataset(*map(torch.from_numpy, (images, labels)))
        return torch.utils.data.DataLoader(tensors, batch_size=size)
    import jax.numpy as jnp

    parts = [slice(k, k + size) for k in range(0, len(images), size)]
    return [(jnp.asarray(images[part]), jnp.asarray(labels[part])) for part in parts]


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


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_the_calibration_error_follows_its_equation(bins):
    """The weighted gap between confidence and accuracy over bins of equal width."""
    logits, classes = 3 * normal(500, 4), np.random.default_rng(0).integers(0, 4, 500)
    shares = softmax(logits)
    found = metrics.calibration_error(shares.max(axis=1), shares.argmax(axis=1) == classes, bins)
    assert np.isclose(found, calibration_error(shares, classes, bins), rtol=1e-9)


def test_a_model_of_three_classes_has_a_perfect_top5(images, classes):
    """The five best classes include all three."""
    assert evaluate(random_tiny(num_classes=3), (images, classes % 3), prepared=True).top5 == 1


def test_equal_logits_rank_as_a_stable_sort_ranks_them():
    """Of classes with equal logits, the first ranks first, as in argmax."""
    logits = np.random.default_rng(0).integers(0, 3, (200, 6)).astype(float)
    right = np.random.default_rng(1).random((200, 6)) < 0.3
    right[:, 0] |= ~right.any(axis=1)
    order = np.argsort(-logits, axis=1, kind="stable")
    first = np.take_along_axis(right, order, axis=1).argmax(axis=1)
    assert np.array_equal(_rank_best(logits, right), first)


def test_every_form_of_data_gives_the_same_scores(model, images, classes, expected):
    """A PyDataset, one-hot labels, a column, the backend's data set, a generator, lists."""
    one_hot = np.eye(7, dtype="float32")[classes]
    sources = {
        "PyDataset": Data(images, classes, 8),
        "one-hot": Data(images, one_hot, 8),
        "column": Data(images, classes[:, None], 8),
        "native": native(images, classes, 8),
        "generator": ((images[k : k + 8], classes[k : k + 8]) for k in (0, 8, 16)),
        "lists": (images, [[label] for label in classes]),
    }
    for name, source in sources.items():
        actual = evaluate(model, source, batch_size=8, prepared=name == "lists")
        assert np.isclose(actual.loss, expected.loss, rtol=1e-5), name
        assert (actual.top1, actual.top5, actual.count) == (
            expected.top1,
            expected.top5,
            23,
        ), name


def test_lists_of_labels_are_scored_as_reassessed_labels(model, images, logits):
    """A prediction in the image's list is right; images with an empty list are left out."""
    rng = np.random.default_rng(3)
    real = [np.flatnonzero(rng.random(7) < 0.2).tolist() for _ in images]
    assert [] in real
    predictions = np.argmax(logits, -1)
    is_right = [guess in real[k] for k, guess in enumerate(predictions) if real[k]]
    actual = evaluate(model, (images, real), batch_size=8, prepared=True)
    assert (actual.count, actual.left_out) == (len(is_right), 23 - len(is_right))
    assert actual.top1 == np.mean(is_right)
    mass = [softmax(logits)[k, classes].sum() for k, classes in enumerate(real) if classes]
    assert np.isclose(actual.loss, -np.log(mass).mean(), rtol=1e-5)

    beside = evaluate(model, (images, predictions), real_labels=real, batch_size=8, prepared=True)
    assert (beside.top1, beside.real, beside.real_count) == (
        1,
        np.mean(is_right),
        len(is_right),
    )


def test_classes_are_matched_by_name(model, images, classes, expected):
    """Data with the model's class names in another order give the same scores."""
    names = ["g", "c", "a", "b", "f", "e", "d"]
    own = np.array([names.index("abcdefg"[k]) for k in classes])
    actual = evaluate(model, Data(images, own, 8, class_names=names))
    assert_close(np.array(actual.class_counts), np.array(expected.class_counts))
    assert actual.class_accuracy == expected.class_accuracy


def test_progress_counts_images_and_the_result_goes_into_json(
    model, images, classes, expected, bar
):
    """The bar is told of the images of each batch."""
    assert (
        evaluate(model, (images, classes), batch_size=8, progress=True, prepared=True) == expected
    )
    assert bar.counts == [8, 8, 7]
    assert json.loads(json.dumps(expected.to_dict()))["class_counts"] == list(expected.class_counts)


BAD = {
    "label 7": lambda x, y: (x, np.where(y == 3, 7, y)),
    "label -1": lambda x, y: (x, np.where(y == 3, -1, y)),
    "lists class 1 twice": lambda x, y: (x, [[1, 1]] * len(x)),
    r"zeros and ones \(batch, 7\)": lambda x, y: (x, np.eye(9)[y]),
    "Mixed images": lambda x, y: (x, 0.5 * np.eye(7)[y]),
    "empty: no batch came": lambda x, y: iter(()),
    "no labels": lambda x, y: x,
    "None of the 23 images": lambda x, y: (x, [[]] * 23),
    "23 images and 22 labels": lambda x, y: (x, y[1:]),
    r"takes images \(batch, 16, 16, 3\), found \(batch, 8, 16, 3\)": lambda x, y: (x[:, :8], y),
    r"found \(batch, 16, 16, 1\)": lambda x, y: (x[..., :1], y),
    "found uint8. model.preprocessor": lambda x, y: (x.astype("uint8"), y),
    "logits of image 2 are not finite": lambda x, y: (
        np.where(np.arange(23)[:, None, None, None] == 2, np.nan, x).astype("float32"),
        y,
    ),
    "a tuple of 3": lambda x, y: (x, y, y),
    "found dict": lambda x, y: [{"image": x}],
    "an array of model.preprocessor, found str": lambda x, y: "photos",
    "'z' fits none": lambda x, y: Data(x, y, 8, class_names=list("abcdefz")),
}


@pytest.mark.parametrize("message", BAD)
def test_data_that_do_not_fit_are_refused(message, model, images, classes):
    """The message names the fault of the data."""
    with pytest.raises(ConfigError, match=message):
        evaluate(model, BAD[message](images, classes), batch_size=32, prepared=True)


def test_evaluate_compares_only_the_classes_of_a_subset():
    """As for ImageNet-A and -R: other logits are ignored; labels are indices in the subset."""
    model = random_tiny(num_classes=6, class_names=list("abcdef"))
    images, labels = normal(20, 16, 16, 3), np.arange(20) % 3
    chosen = [4, 1, 3]
    logits = model.predict(images, verbose=0)[:, chosen]
    by_number = evaluate(model, (images, labels), classes=chosen, prepared=True)
    assert by_number.top1 == accuracy_score(labels, logits.argmax(axis=1))
    assert abs(by_number.loss - log_loss(labels, softmax(logits))) < 1e-5
    assert len(by_number.class_counts) == 3
    assert evaluate(model, (images, labels), classes=["e", "b", "d"], prepared=True) == by_number
    named = Data(images, labels, 8, class_names=("e", "b", "d"))
    assert abs(evaluate(model, named, classes=[1, 3, 4]).loss - by_number.loss) < 1e-6
