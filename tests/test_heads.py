"""`with_head` makes a VisionTransformer of a head that was added in Keras's functional way."""

import keras
import numpy as np
import pytest

from keras_vit import ConfigError, VisionTransformer
from tests.helpers import assert_close, normal, numpy_of, random_tiny

IMAGES = normal(2, 16, 16, 3)
NAMES = ("a", "b", "c")


def functional(model, head):
    return keras.Model(model.input, head(model.get_layer("pre_logits").output))


def test_a_functional_head_comes_back_with_classify_and_presets(tmp_path):
    """After a training step of the plain model, which changes the encoder too."""
    model, head = random_tiny(), keras.layers.Dense(3)
    plain = functional(model, head)
    plain.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    plain.train_on_batch(IMAGES, np.array([0, 2]))
    classifier = model.with_head(head, labels=NAMES)
    assert_close(classifier(IMAGES), numpy_of(plain(IMAGES)))
    answer = classifier.classify(np.zeros((16, 16, 3), "uint8"), top=3)[0]
    assert {label for label, _ in answer} == set(NAMES)
    classifier.save_to_preset(tmp_path / "preset")
    loaded = VisionTransformer.from_preset(tmp_path / "preset")
    assert loaded.labels == NAMES
    np.testing.assert_array_equal(numpy_of(loaded(IMAGES)), numpy_of(classifier(IMAGES)))


@pytest.mark.parametrize("options", [{"activation": "softmax"}, {"use_bias": False}])
def test_activation_and_missing_bias_of_a_head_are_kept(options):
    """A softmax becomes `classifier_activation`; without a bias the bias is zero."""
    model, head = random_tiny(), keras.layers.Dense(3, **options)
    expected = numpy_of(functional(model, head)(IMAGES))
    classifier = model.with_head(head)
    assert_close(classifier(IMAGES), expected)
    assert classifier.config.classifier_activation == options.get("activation")


def test_the_copy_shares_no_weight_with_the_model():
    """Training the copy does not change the model."""
    model, head = random_tiny(), keras.layers.Dense(3)
    before = numpy_of(functional(model, head)(IMAGES))
    copy = model.with_head(head)
    copy.set_weights([np.zeros_like(weight) for weight in copy.get_weights()])
    np.testing.assert_array_equal(numpy_of(functional(model, head)(IMAGES)), before)


@pytest.mark.parametrize(
    ("head", "width", "words"),
    [
        (lambda: keras.layers.Dense(3), None, "was called or built"),
        (lambda: keras.Sequential([keras.layers.Dense(3)]), 16, r"save it as a \.keras file"),
        (lambda: keras.layers.Dense(3), 7, "vectors of width 7; the pre_logits .* have 16"),
        (lambda: keras.layers.Dense(3, activation="relu"), 16, "classifier_activation='relu'"),
    ],
)
def test_a_head_that_no_preset_can_hold_is_refused(head, width, words):
    """The message says what was expected, and what to do with another head."""
    layer = head()
    if width:
        layer.build((None, width))
    with pytest.raises(ConfigError, match=words):
        random_tiny().with_head(layer)
