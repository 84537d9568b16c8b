"""The model under Keras's compile, fit, evaluate, predict, summary and jit_compile."""

import keras
import numpy as np
import pytest
from scipy.special import log_softmax

from tests.helpers import assert_close, copy_weights, random_tiny, run, tiny, to_numpy
from tests.plain import HYBRID, normal
from tests.runs import sample

pytestmark = pytest.mark.every_backend

IMAGES, CLASSES = normal(8, 16, 16, 3), np.arange(8) % 5
COMPILERS = {"tensorflow": [False, True], "jax": [True], "torch": [False]}[keras.backend.backend()]
"""Values of `jit_compile`. On torch, True needs a C++ compiler and minutes, so it is left out."""


def compiled(model, **arguments):
    """The model, compiled with a loss from logits."""
    arguments = {"optimizer": "adam", "jit_compile": COMPILERS[0], **arguments}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, metrics=["accuracy"], **arguments)
    return model


@pytest.mark.parametrize("jit_compile", COMPILERS)
def test_fit_learns_and_evaluate_and_predict_agree(jit_compile):
    """The model learns eight images by heart; its first loss is that of a zero head."""
    keras.utils.set_random_seed(0)
    optimizer = keras.optimizers.Adam(0.01)
    model = compiled(tiny(), optimizer=optimizer, jit_compile=jit_compile)
    losses = model.fit(IMAGES, CLASSES, batch_size=8, epochs=30, verbose=0).history["loss"]
    assert abs(losses[0] - np.log(5)) < 1e-5
    loss, accuracy = model.evaluate(IMAGES, CLASSES, verbose=0)
    assert loss < 0.1
    assert accuracy == 1
    logits = model.predict(IMAGES, verbose=0)
    assert (logits.argmax(1) == CLASSES).all()
    assert_close(logits, to_numpy(model(IMAGES)))
    assert abs(-log_softmax(logits, axis=1)[np.arange(8), CLASSES].mean() - loss) < 1e-4


@pytest.mark.parametrize("jit_compile", COMPILERS)
def test_an_any_size_model_trains_at_every_size_and_equals_models_of_fixed_size(jit_compile):
    """At the stored grid, and at another one with resized positions, in turn."""
    model = compiled(random_tiny(image_size=None, position_grid=(2, 3)), jit_compile=jit_compile)
    positions = model.get_layer("position_embedding").embedding
    for size in ((16, 24), (24, 40), (16, 24)):
        images, before = normal(2, *size, 3), to_numpy(positions)
        fixed = copy_weights(model, tiny(image_size=size, position_grid=(2, 3)))
        assert_close(model.predict(images, verbose=0), run(fixed, images))
        assert np.isfinite(model.train_on_batch(images, CLASSES[:2])[0])
        assert not np.array_equal(to_numpy(positions), before)


OF_TWO_BLOCKS = {"num_layers": 3, "pool": {"kind": "token_and_mean", "blocks": 2}}
OTHER = {**HYBRID, "pool": {"kind": "map"}, "tokens": {"class_tokens": 0}, "representation_size": 7}


@pytest.mark.parametrize("fields", [OTHER, OF_TWO_BLOCKS], ids=["hybrid", "two blocks"])
def test_a_training_step_moves_every_weight(fields):
    """Gradients reach stem, class token, positions, every block, pooling and head."""
    model = compiled(random_tiny(**fields), optimizer="sgd")
    before = {weight.path: to_numpy(weight) for weight in model.weights}
    model.fit(IMAGES, CLASSES, verbose=0)
    moved = {w.path: np.abs(to_numpy(w) - before[w.path]) for w in model.weights}
    # The key bias does not change a softmax, so its gradient is rounding alone.
    still = [path for path, each in moved.items() if not (each.any() or path.endswith("key/bias"))]
    assert still == []
    (head,) = (each for path, each in moved.items() if path.endswith("head/kernel"))
    assert (head.max(axis=1) > 0).all()  # the class tokens of both blocks


RATES = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")


@pytest.mark.parametrize("rate", sample(RATES, "attention_dropout_rate"))
def test_each_rate_acts_in_training_only(rate):
    """Draws differ between calls, follow the seed, and do not happen at inference."""
    plain = to_numpy(random_tiny(num_layers=2)(IMAGES))

    def draws():
        keras.utils.set_random_seed(3)
        model = random_tiny(num_layers=2, **{rate: 0.5})
        assert_close(model(IMAGES), plain)
        return [to_numpy(model(IMAGES, training=True)) for _ in range(2)]

    first, again = draws(), draws()
    np.testing.assert_array_equal(first, again)
    assert np.abs(first[0] - first[1]).max() > 0.01
    assert np.abs(first[0] - plain).max() > 0.01
