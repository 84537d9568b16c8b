"""The losses and metrics that `compile` chooses, corrects or keeps."""

import warnings

import keras
import numpy as np
import pytest
from scipy.special import log_softmax

from keras_vit.models.losses import SingleLabelCrossentropy, adapt_losses, warn_of_logits
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal
from tests.runs import sample

IMAGES, LABELS = normal(8, 16, 16, 3), np.arange(8) % 5
L, M = keras.losses, keras.metrics
SOFTMAX = {"classifier_activation": "softmax"}


def loss_for(loss, model):
    return adapt_losses(model.prediction, None, loss, None, None)[0]


def true_loss(logits, labels=LABELS):
    """The mean cross-entropy of logits."""
    return -log_softmax(logits.astype("float64"), axis=1)[np.arange(len(labels)), labels].mean()


OF_LOGITS, OF_PROBABILITIES = "the model returns logits", "the model returns probabilities"
SIGMOID = {"task": "multi_label", "classifier_activation": "sigmoid"}
SPARSE, SINGLE = L.SparseCategoricalCrossentropy, SingleLabelCrossentropy
BINARY = L.BinaryCrossentropy
CHOSEN = [
    ("sparse_categorical_crossentropy", {}, SPARSE, True, OF_LOGITS),
    (SPARSE, {}, SPARSE, True, OF_LOGITS),
    (SPARSE(), {}, SPARSE, True, OF_LOGITS),
    (L.CategoricalCrossentropy(True), SOFTMAX, L.CategoricalCrossentropy, False, OF_PROBABILITIES),
    ("auto", {}, SINGLE, True, None),
    ("auto", SOFTMAX, SINGLE, False, None),
    ("auto", SIGMOID, BINARY, False, None),
    ("auto", {"task": "multi_label"}, BINARY, True, None),
    ("auto", {"num_classes": 1}, BINARY, True, None),
]


@pytest.mark.parametrize(("loss", "fields", "kind", "from_logits", "warning"), CHOSEN)
def test_the_loss_fits_the_outputs_of_the_head(loss, fields, kind, from_logits, warning, recwarn):
    """A loss for other outputs is replaced, also in a list, and one warning says so."""
    (chosen,) = loss_for([loss], tiny(**fields)) if warning else [loss_for(loss, tiny(**fields))]
    assert (type(chosen), chosen.get_config()["from_logits"]) == (kind, from_logits)
    said = [str(each.message) for each in recwarn if "it is used" in str(each.message)]
    assert len(said) == (warning is not None)
    assert not said or warning in said[0]


def test_a_loss_and_metrics_have_the_values_of_logits_also_in_a_file(tmp_path):
    """Metrics that take logits by their argument, by a threshold of 0, by ranks, and the user's."""

    class Own(M.F1Score):
        pass

    model = random_tiny()
    entropy = M.SparseCategoricalCrossentropy(from_logits=True, name="entropy")
    made = ["accuracy", M.SparseTopKCategoricalAccuracy(2, name="top2"), entropy]
    with pytest.warns(UserWarning, match="from_logits=True"):
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=made)
    model.save(tmp_path / "x.keras")
    logits = to_numpy(model(IMAGES))
    among_two = (np.argsort(-logits, axis=1)[:, :2] == LABELS[:, None]).any(axis=1).mean()
    expected = {"accuracy": (logits.argmax(1) == LABELS).mean(), "top2": among_two}
    expected |= dict.fromkeys(("entropy", "loss"), true_loss(logits))
    for each in (model, keras.saving.load_model(tmp_path / "x.keras")):
        actual = each.evaluate(IMAGES, LABELS, verbose=0, return_dict=True)
        assert actual == pytest.approx(expected, rel=1e-5)
    model.compile("sgd", "auto", metrics=[M.AUC(from_logits=True), M.Precision(0.0), Own()])


@pytest.mark.every_backend
@pytest.mark.parametrize("activation", sample((None, "softmax"), None))
def test_one_hot_labels_have_the_loss_of_their_indices(activation, tmp_path):
    """In `fit` and `evaluate` by the loss "auto", also of a saved model."""
    model = random_tiny(classifier_activation=activation)
    model.compile(keras.optimizers.SGD(0.0), "auto", metrics=["accuracy"])
    model.save(tmp_path / "x.keras")
    one_hot = np.eye(5, dtype="int64")[LABELS]
    expected = model.evaluate(IMAGES, LABELS, verbose=0)
    again = keras.saving.load_model(tmp_path / "x.keras")
    np.testing.assert_allclose(again.evaluate(IMAGES, one_hot, verbose=0), expected, rtol=1e-5)
    losses = again.fit(IMAGES, one_hot, verbose=0).history["loss"]
    np.testing.assert_allclose(losses, expected[:1], rtol=1e-5)


@pytest.mark.on_backend("tensorflow")
def test_labels_of_a_size_that_the_graph_does_not_know_are_never_broadcast():
    import tensorflow as tf

    loss = tf.function(
        SingleLabelCrossentropy(from_logits=True),
        input_signature=[tf.TensorSpec((None, None)), tf.TensorSpec((None, 5))],
    )
    logits = normal(5, 5)
    labels = np.eye(5, dtype="float32")
    np.testing.assert_allclose(loss(labels, logits), true_loss(logits, range(5)), rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError):
        loss(labels[:, :1], logits)


def test_losses_that_fit_and_losses_of_the_user_are_kept():
    """`None` means losses that layers add."""

    class Own(SPARSE):
        pass

    for kept in (None, Own(), L.CategoricalCrossentropy(from_logits=True)):
        assert loss_for(kept, tiny()) is kept
    assert loss_for("mse", tiny()) in ("mse", L.mean_squared_error)
    assert loss_for("crossentropy", tiny(**SOFTMAX)) == "crossentropy"


@pytest.mark.parametrize("word", ["accuracy", "Accuracy", "acc"])
def test_a_model_of_one_class_has_a_binary_accuracy(word):
    """The threshold is 0, because the model returns logits."""
    (metric,) = adapt_losses(tiny(num_classes=1).prediction, None, "auto", [word], None)[1]
    assert type(metric) is M.BinaryAccuracy
    assert (metric.name, metric.get_config()["threshold"]) == (word, 0)


def functional(vit):
    images = keras.Input((16, 16, 3))
    return keras.Model(images, vit(keras.layers.Rescaling(1.0)(images)))


def test_a_model_of_logits_inside_another_model_warns_once():
    """With both remedies; a second model is silent."""
    warn_of_logits.cache_clear()
    with pytest.warns(UserWarning, match="returns logits") as record:
        keras.Sequential([keras.Input((16, 16, 3)), tiny()])
        functional(tiny())
    (said,) = (str(each.message) for each in record if "returns logits" in str(each.message))
    assert 'classifier_activation="softmax"' in said
    assert "SparseCategoricalCrossentropy(from_logits=True)" in said


def test_models_without_logits_and_saved_models_do_not_warn(tmp_path):
    warn_of_logits.cache_clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*returns logits")
        for fields in ({"num_classes": 0}, SOFTMAX, {"num_classes": 1, "task": "regression"}):
            functional(tiny(**fields))
        model = tiny()
        model.save(tmp_path / "x.keras")
        keras.saving.load_model(tmp_path / "x.keras")
