"""Under TensorFlow, what it is told about data sets; under torch, gradients that are in the way."""

import functools

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer, ViTConfig
from keras_vit.finetune import LayerwiseSGD
from keras_vit.tasks import MaskedPatchPrediction

on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="Only TensorFlow has tf.data."
)
CONFIG = ViTConfig(
    image_size=8, patch_size=4, hidden_size=8, mlp_dim=16, num_heads=2, num_layers=1, num_classes=3
)
IMAGES = np.zeros((4, 8, 8, 3), "float32")
LABELS = np.zeros(4, "int32")


@pytest.fixture
def tuned(monkeypatch):
    """The `autotune.enabled` of each data set that was iterated over."""
    import tensorflow as tf

    seen = []
    strategy = type(tf.distribute.get_strategy())
    distribute = strategy.experimental_distribute_dataset

    def record(self, dataset, options=None):
        seen.append(dataset.options().autotune.enabled)
        return distribute(self, dataset, options)

    monkeypatch.setattr(strategy, "experimental_distribute_dataset", record)
    return seen


def compiled(model):
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@on_tensorflow
def test_no_data_set_of_keras_is_tuned(tuned):
    """Whose thread would hold up the end of `fit`, `evaluate` and `predict`."""
    model = compiled(VisionTransformer(CONFIG))
    model.fit(IMAGES, LABELS, batch_size=2, validation_data=(IMAGES, LABELS), verbose=0)
    model.evaluate(IMAGES, LABELS, verbose=0)
    model.predict(IMAGES, verbose=0)
    assert tuned == [False] * 4


@on_tensorflow
def test_masked_patch_prediction_is_the_same(tuned):
    """It trains longest of all."""
    task = MaskedPatchPrediction(CONFIG)
    task.compile("sgd")
    task.fit(IMAGES, verbose=0)
    assert tuned == [False]


@on_tensorflow
@pytest.mark.parametrize("wanted", [True, False])
def test_what_a_data_set_asks_for_itself_is_kept(tuned, wanted):
    """A pipeline that decodes for hours may gain from tuning."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = wanted
    images = tf.data.Dataset.from_tensors(IMAGES).with_options(options)
    VisionTransformer(CONFIG).predict(images, verbose=0)
    assert tuned == [wanted]


@on_tensorflow
def test_the_strategy_is_the_one_in_whose_scope_the_model_was_made():
    """In type, in attributes, and in what it computes."""
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["cpu:0"]).scope():
        model = compiled(VisionTransformer(CONFIG))
    assert isinstance(model.distribute_strategy, tf.distribute.MirroredStrategy)
    assert model.distribute_strategy.num_replicas_in_sync == 1
    model.fit(IMAGES, LABELS, verbose=0)
    assert model.predict(IMAGES, verbose=0).shape == (4, 3)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="Only torch keeps gradients.")
def test_a_forward_pass_of_training_has_no_gradients_beside_it(monkeypatch):
    """They stay after a step, for whoever looks at them, but not until the next one's end."""
    model = compiled(VisionTransformer(CONFIG))
    call, seen = model.call, []

    def held():
        return {weight.value.grad is not None for weight in model.trainable_weights}

    def spy(*args, **kwargs):
        seen.append(held())
        return call(*args, **kwargs)

    monkeypatch.setattr(model, "call", spy)
    model.fit(IMAGES, LABELS, batch_size=2, verbose=0)
    assert seen[-2:] == [{False}] * 2  # Keras may call a model once more, to build it
    assert held() == {True}


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="Only torch keeps gradients.")
def test_gradients_keep_their_places_under_remat():
    """What a block needs for a moment then finds room again where it was."""
    model = compiled(VisionTransformer(CONFIG, remat=True))
    places = []
    for _ in range(2):
        model.train_on_batch(IMAGES, LABELS)
        places.append([weight.value.grad.data_ptr() for weight in model.trainable_weights])
    assert places[0] == places[1]
    model.zero_grad()
    assert all(float(abs(w.value.grad).max()) == 0 for w in model.trainable_weights)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="Only torch compiles step by step.")
@pytest.mark.parametrize("remat", [False, True])
def test_a_compiled_step_is_compiled_once(remat, monkeypatch):
    """It trains as the step that is not, and the third time nothing is new to the compiler."""
    import torch

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    images = np.random.default_rng(0).standard_normal(IMAGES.shape).astype("float32")
    trained = []
    for compiles in (False, True):
        keras.utils.set_random_seed(0)
        model = VisionTransformer(CONFIG, remat=remat)
        model.compile(
            LayerwiseSGD(0.1, momentum=0.9, weight_decay=0.1, global_clipnorm=1.0),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=compiles,
        )
        model.fit(images, LABELS, batch_size=2, verbose=0)
        with torch._dynamo.config.patch(error_on_recompile=True):
            model.fit(images, LABELS, batch_size=2, verbose=0)
        trained.append([keras.ops.convert_to_numpy(weight) for weight in model.weights])
    for expected, found in zip(*trained, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
