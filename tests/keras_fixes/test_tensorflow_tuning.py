"""tf.data's autotuning is off; see keras_vit/keras_fixes/tensorflow_tuning.py."""

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.tasks import MaskedPatchPrediction
from tests.keras_fixes.models import CONFIG, IMAGES, LABELS, Batches, plain, vit

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="Only TensorFlow has tf.data."
)


@pytest.fixture
def tuned(monkeypatch):
    """The `autotune.enabled` of each data set that Keras iterates over."""
    import tensorflow as tf

    seen = []
    strategy = type(tf.distribute.get_strategy())
    distribute = strategy.experimental_distribute_dataset

    def record(self, dataset, options=None):
        seen.append(dataset.options().autotune.enabled)
        return distribute(self, dataset, options)

    monkeypatch.setattr(strategy, "experimental_distribute_dataset", record)
    return seen


@pytest.mark.parametrize("data", ["arrays", "PyDataset"])
def test_no_data_set_of_keras_is_tuned(tuned, data):
    """The tuning thread would delay the end of `fit`, `evaluate` and `predict`."""
    model = vit()
    given = (IMAGES, LABELS) if data == "arrays" else (Batches(None),)
    validation = given if data == "arrays" else given[0]
    history = model.fit(*given, validation_data=validation, verbose=0)
    assert "val_loss" in history.history
    model.evaluate(*given, verbose=0)
    model.predict(given[0], verbose=0)
    assert tuned == [False] * 4


def test_the_data_sets_of_masked_patch_prediction_are_not_tuned(tuned):
    """The task has its own class of model."""
    task = MaskedPatchPrediction(CONFIG)
    task.compile("sgd")
    task.fit(IMAGES, verbose=0)
    assert tuned == [False]


@pytest.mark.parametrize("wanted", [True, False])
def test_the_option_of_a_data_set_is_kept(tuned, wanted):
    """A long pipeline may gain from tuning, so the user's option counts."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = wanted
    images = tf.data.Dataset.from_tensors(IMAGES).with_options(options)
    VisionTransformer(CONFIG).predict(images, verbose=0)
    assert tuned == [wanted]


def test_sample_weights_class_weights_and_validation_split_take_effect():
    """The arguments of `fit` and `evaluate` mean the same as in Keras."""
    model = vit()
    whole = model.evaluate(IMAGES[:4], LABELS[:4], verbose=0, return_dict=True)
    halves = np.array([1.0] * 4 + [0.0] * 12, "float32")
    weighted = model.evaluate(IMAGES, LABELS, sample_weight=halves, verbose=0, return_dict=True)
    np.testing.assert_allclose(weighted["loss"] * 4, whole["loss"], rtol=1e-5)
    before = model.get_weights()
    model.fit(IMAGES, LABELS, class_weight={0: 0.0, 1: 0.0, 2: 0.0}, verbose=0)
    for expected, found in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    history = model.fit(IMAGES, LABELS, validation_split=0.5, verbose=0)
    assert "val_loss" in history.history


def test_the_strategy_is_the_one_in_whose_scope_the_model_was_made():
    """`distribute_strategy` is that object, and the model trains in its replicas."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    with strategy.scope():
        model = vit()
    assert model.distribute_strategy is strategy
    assert vit().distribute_strategy is tf.distribute.get_strategy()
    model.fit(IMAGES, LABELS, verbose=0)
    assert model.predict(IMAGES, verbose=0).shape == (16, 3)


def test_canary_keras_tunes_its_data_sets_and_takes_adapters(tuned):
    """Fails when Keras itself switches tuning off: remove tensorflow_tuning.py then."""
    model = plain()
    model.predict(IMAGES, verbose=0)
    assert tuned == [None], "Keras sets the option itself: see keras_fixes/tensorflow_tuning.py."
    from keras.src.trainers import data_adapters

    adapter = data_adapters.get_data_adapter(IMAGES)
    assert data_adapters.get_data_adapter(adapter) is adapter
    assert callable(adapter.get_tf_dataset)
