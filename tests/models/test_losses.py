"""The losses that `compile` chooses, corrects or refuses."""

import keras
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from keras_vit.errors import ConfigError
from keras_vit.models.losses import SingleLabelCrossentropy, adapt_losses
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal

pytestmark = pytest.mark.every_backend

IMAGES, LABELS = normal(8, 16, 16, 3), np.arange(8) % 5
TYPED = (
    "sparse_categorical_crossentropy",
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.SparseCategoricalCrossentropy,
    keras.losses.SparseCategoricalCrossentropy(),
    ["sparse_categorical_crossentropy"],
)


def loss_for(loss, model):
    return adapt_losses(model.prediction, loss, None, None)[0]


def true_loss(logits, labels=LABELS):
    """The mean cross-entropy of logits."""
    return -log_softmax(logits.astype("float64"), axis=1)[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("loss", TYPED, ids=["string", "function", "class", "object", "list"])
def test_a_loss_for_probabilities_is_replaced_by_the_loss_from_logits(loss):
    """One warning says so."""
    with pytest.warns(
        UserWarning, match="is for probabilities; the model returns logits"
    ) as record:
        actual = loss_for(loss, tiny())
    assert len(record) == 1
    actual = actual[0] if isinstance(actual, list) else actual
    assert actual.get_config()["from_logits"]


def test_a_model_compiled_with_it_evaluates_from_logits(tmp_path):
    """Loss and accuracy are right, also after saving and loading."""
    model = random_tiny()
    with pytest.warns(UserWarning, match="from_logits=True"):
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    logits = to_numpy(model(IMAGES))
    actual = model.evaluate(IMAGES, LABELS, verbose=0, return_dict=True)
    np.testing.assert_allclose(actual["loss"], true_loss(logits), rtol=1e-5)
    np.testing.assert_allclose(actual["accuracy"], (logits.argmax(1) == LABELS).mean(), rtol=1e-6)
    model.save(tmp_path / "x.keras")
    again = keras.saving.load_model(tmp_path / "x.keras").evaluate(IMAGES, LABELS, verbose=0)
    np.testing.assert_allclose(again[0], actual["loss"], rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "loss"),
    [
        ({}, SingleLabelCrossentropy(from_logits=True)),
        ({"classifier_activation": "softmax"}, SingleLabelCrossentropy()),
        (
            {"task": "multi_label", "classifier_activation": "sigmoid"},
            keras.losses.BinaryCrossentropy(),
        ),
        ({"task": "multi_label"}, keras.losses.BinaryCrossentropy(from_logits=True)),
        ({"num_classes": 1}, keras.losses.BinaryCrossentropy(from_logits=True)),
    ],
)
def test_the_loss_auto_is_the_loss_of_the_head(fields, loss):
    """By the number of classes and the activation of the classifier."""
    model = tiny(**fields)
    chosen = loss_for("auto", model)
    assert type(chosen) is type(loss)
    assert chosen.get_config() == loss.get_config()


@pytest.mark.parametrize("activation", [None, "softmax"])
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


def test_one_hot_labels_of_another_number_of_classes_are_refused():
    with pytest.raises(ConfigError, match="4 classes; the model has 5"):
        SingleLabelCrossentropy()(np.eye(4), normal(4, 5))


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


def test_no_loss_stays_no_loss_and_auto_needs_a_head():
    """`loss=None` means what Keras means by it: losses that layers add."""
    assert loss_for(None, tiny()) is None
    with pytest.raises(ConfigError, match="this model has none"):
        tiny(num_classes=0).compile("sgd", "auto")


def test_losses_that_fit_and_losses_of_the_user_are_kept():
    """A loss from logits is replaced only for a head that returns probabilities."""

    class Own(keras.losses.SparseCategoricalCrossentropy):
        pass

    own = Own()
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model = tiny()
    assert loss_for(own, model) is own
    assert loss_for(loss, model) is loss
    assert loss_for("mse", model) in ("mse", keras.losses.mean_squared_error)
    with pytest.warns(UserWarning, match="for logits; the model returns probabilities"):
        actual = loss_for(loss, tiny(classifier_activation="softmax"))
    assert not actual.get_config()["from_logits"]


@pytest.mark.parametrize("loss", ["crossentropy", "CE"])
def test_the_loss_that_keras_chooses_by_the_labels_needs_probabilities(loss):
    """Keras would give it logits, of which it makes NaN; the message names both losses."""
    with pytest.raises(ConfigError, match=rf"loss='{loss}' is for .*\"auto\".*from_logits=True"):
        tiny().compile("sgd", {"head": loss})
    model = random_tiny(classifier_activation="softmax")
    model.compile("sgd", loss, run_eagerly=True)
    actual = model.evaluate(IMAGES, LABELS, verbose=0)
    logits = np.log(to_numpy(model(IMAGES)))
    np.testing.assert_allclose(actual, true_loss(logits), rtol=1e-5)


@pytest.mark.parametrize("loss", ["kl_divergence", keras.losses.Dice(), keras.losses.Tversky])
def test_a_loss_that_only_takes_probabilities_is_refused(loss):
    with pytest.raises(ConfigError, match='is for probabilities.*classifier_activation="softmax"'):
        tiny().compile("sgd", loss)


@pytest.mark.parametrize("word", ["accuracy", "Accuracy", "acc"])
def test_a_model_of_one_class_has_a_binary_accuracy(word):
    """The threshold is 0, because the model returns logits."""
    model = random_tiny(num_classes=1)
    model.compile("sgd", "auto", metrics=[word])
    logits, labels = to_numpy(model(IMAGES))[:, 0], np.arange(8) % 2
    actual = model.evaluate(IMAGES, labels[:, None], verbose=0, return_dict=True)
    np.testing.assert_allclose(actual[word], ((logits > 0) == labels).mean())


def test_a_model_with_softmax_returns_probabilities():
    """`evaluate` and `classify` give the same results."""
    from keras_vit import VisionTransformer, evaluate

    plain = random_tiny()
    model = VisionTransformer(plain.config, classifier_activation="softmax")
    model.set_weights(plain.get_weights())
    want = softmax(to_numpy(plain(IMAGES)), axis=1)
    np.testing.assert_allclose(to_numpy(model(IMAGES)), want, rtol=1e-5)
    np.testing.assert_allclose(
        evaluate(model, (IMAGES, LABELS), prepared=True).loss,
        evaluate(plain, (IMAGES, LABELS), prepared=True).loss,
        rtol=1e-5,
    )
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), "uint8")
    for actual, expected in zip(model.classify(pixels), plain.classify(pixels), strict=True):
        assert [name for name, _ in actual] == [name for name, _ in expected]
        np.testing.assert_allclose([p for _, p in actual], [p for _, p in expected], rtol=1e-5)
