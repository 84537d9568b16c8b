"""The data count epochs correctly, or refuse, for every way in which Keras reads them."""

import random

import keras
import pytest

from keras_vit.training import Resume
from tests.data.runs import fit, numbered, read_epochs, small_model, trained_on

FITS = {
    "a pass": ({}, {"epochs": 3}, 3),
    "three batches of many passes": ({"steps_per_epoch": 3}, {"epochs": 3}, 3),
    "a pass in three epochs of fit": ({"count": 24}, {"epochs": 6, "steps_per_epoch": 2}, 2),
}


@pytest.mark.every_backend
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", FITS)
def test_fit_sees_the_batches_of_each_epoch_once(name):
    """The batches that Keras reads before its first epoch, to learn shapes, do not count.

    Validation data count their own epochs.
    """
    made, options, epochs = FITS[name]
    data, validation = numbered(shuffle=True, **made), numbered(8, shuffle=True)
    expected = read_epochs(data, epochs)
    assert trained_on(data, validation_data=validation, **options) == expected
    assert (data.epoch, validation.epoch) == (epochs, options["epochs"])


def test_a_second_fit_continues_after_the_last_epoch_of_the_first():
    """With the built model of the first fit, and with a new model."""
    data = numbered(shuffle=True)
    expected = read_epochs(data, 4)
    model = small_model(data)
    seen = fit(model, data, epochs=2) + fit(model, data, epochs=1) + trained_on(data, epochs=1)
    assert seen == expected
    assert data.epoch == 4


@pytest.mark.on_backend("jax", "tensorflow")
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_executions_of_several_steps_count_an_epoch_once():
    """Keras calls `on_epoch_end` twice for an epoch of five batches in executions of two."""
    data = numbered(shuffle=True)
    fit(small_model(data, steps_per_execution=2), data, epochs=2)
    assert data.epoch == 2


def interruption(when, at):
    """A callback that stops the training as Ctrl-C does."""

    def interrupt(number, logs):
        if number == at:
            raise KeyboardInterrupt

    return keras.callbacks.LambdaCallback(**{when: interrupt})


def test_an_interrupted_fit_can_be_repeated_or_resumed(tmp_path):
    """The resumed training gets the batches that the uninterrupted one would get."""
    data = numbered(shuffle=True)
    expected = read_epochs(data, 3)
    with pytest.raises(KeyboardInterrupt):
        trained_on(data, callbacks=[interruption("on_train_batch_end", 2)])
    assert data.epoch == 0
    stopping = [Resume(tmp_path, data), interruption("on_epoch_begin", 1)]
    with pytest.raises(KeyboardInterrupt):
        trained_on(data, epochs=3, callbacks=stopping)
    data = numbered(shuffle=True)
    resume = Resume(tmp_path, data)
    options = {"initial_epoch": resume.epoch, "callbacks": [resume]}
    assert trained_on(data, epochs=3, **options) == expected[5:]
    assert data.epoch == 3


def test_epochs_of_one_batch_are_counted_by_resume(tmp_path):
    """Without it, the batch that Keras reads to learn the shapes of a new model is a pass."""
    data = numbered(batch_size=20, shuffle=True)
    expected = read_epochs(data, 3)
    assert trained_on(data, epochs=3, callbacks=[Resume(tmp_path, data)]) == expected


def test_fit_with_shuffle_warns_and_only_reorders_the_batches():
    """`fit` shuffles the order of batches by default; the batches themselves are unchanged."""
    data = numbered(40, shuffle=True)
    expected = read_epochs(data, 1)
    random.seed(0)
    with pytest.warns(UserWarning, match="shuffle=False"):
        seen = trained_on(data, epochs=1, shuffle=True)
    assert seen != expected
    assert sorted(seen) == sorted(expected)
