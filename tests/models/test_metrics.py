"""Metrics of Keras that take probabilities, in `compile` of a model that returns logits."""

import warnings

import keras
import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.models.losses import warn_of_logits
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal

pytestmark = pytest.mark.every_backend

IMAGES, LABELS = normal(40, 16, 16, 3), np.arange(40) % 3
M = keras.metrics


@pytest.mark.parametrize(
    "given",
    [
        ["auc"],
        [M.Precision],
        [M.binary_accuracy],
        {"class_name": "F1Score", "config": {}},
        [[M.PrecisionAtRecall(0.6)]],
        {"head": ["crossentropy"]},
        [M.SparseCategoricalCrossentropy()],
    ],
    ids=["name", "class", "function", "dict", "lists", "by_output", "object"],
)
@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
def test_a_metric_of_probabilities_is_refused_with_the_remedy(given, argument):
    """In every form that `compile` of Keras takes; a model of probabilities takes it."""
    wanted = (
        r'The metric .* is for probabilities.*classifier_activation="softmax".*from_logits=True'
    )
    with pytest.raises(ConfigError, match=wanted):
        tiny(num_classes=3).compile("sgd", "auto", **{argument: given})
    tiny(num_classes=3, classifier_activation="softmax").compile("sgd", "auto", **{argument: given})


def test_metrics_that_take_logits_are_kept():
    """By their argument, by a threshold of 0, by ranks, and all classes of the user."""

    class Own(M.F1Score):
        pass

    model = random_tiny(num_classes=3)
    made = [
        "accuracy",
        M.SparseTopKCategoricalAccuracy(2, name="top2"),
        M.SparseCategoricalCrossentropy(from_logits=True, name="entropy"),
    ]
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=made)
    actual = model.evaluate(IMAGES, LABELS, verbose=0, return_dict=True)
    logits = to_numpy(model(IMAGES))
    np.testing.assert_allclose(actual["accuracy"], (logits.argmax(1) == LABELS).mean(), rtol=1e-6)
    among_two = (np.argsort(-logits, axis=1)[:, :2] == LABELS[:, None]).any(axis=1).mean()
    np.testing.assert_allclose(actual["top2"], among_two, rtol=1e-6)
    np.testing.assert_allclose(actual["entropy"], actual["loss"], rtol=1e-5)
    model.compile("sgd", "auto", metrics=[M.AUC(from_logits=True), M.Precision(0.0), Own()])


LAYERS = keras.layers
AROUND = {
    "sequential": lambda vit: keras.Sequential([keras.Input((16, 16, 3)), vit]),
    "functional": lambda vit: keras.Model(
        images := keras.Input((16, 16, 3)), vit(LAYERS.Rescaling(1.0)(images))
    ),
}


@pytest.mark.parametrize("form", AROUND)
def test_a_model_of_logits_inside_another_model_warns_once(form):
    """With both remedies; a second model is silent."""
    warn_of_logits.cache_clear()
    with pytest.warns(UserWarning, match="returns logits") as record:
        AROUND[form](tiny())
        AROUND[form](tiny())
    said = [str(each.message) for each in record if "returns logits" in str(each.message)]
    assert len(said) == 1
    assert 'classifier_activation="softmax"' in said[0]
    assert "SparseCategoricalCrossentropy(from_logits=True)" in said[0]


def test_models_without_logits_and_parts_of_a_model_do_not_warn(tmp_path):
    """Nor does a model that is copied, saved and loaded."""
    warn_of_logits.cache_clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*returns logits")
        for fields in ({"num_classes": 0}, {"classifier_activation": "softmax"}):
            AROUND["functional"](tiny(**fields))
        AROUND["functional"](tiny(num_classes=1, task="regression"))
        model = tiny()
        keras.Model(model.input, model.output)
        keras.models.clone_model(model)
        model.save(tmp_path / "x.keras")
        keras.saving.load_model(tmp_path / "x.keras")
