"""The data count epochs correctly, or refuse, for every way in which Keras reads them."""

import random
import threading
import warnings

import keras
import pytest

from keras_vit.training import Resume
from tests.data.runs import fit, numbered, read_epochs, small_model, trained_on


@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 3}], ids=str)
def test_fit_sees_the_batches_of_each_epoch_once(options):
    """The batches that Keras reads before its first epoch, to learn shapes, do not count."""
    data = numbered(shuffle=True, **options)
    expected = read_epochs(data, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert trained_on(data, epochs=3) == expected
    assert data.epoch == 3


def test_a_second_fit_continues_after_the_last_epoch_of_the_first():
    """With the built model of the first fit, and with a new model."""
    data = numbered(shuffle=True)
    expected = read_epochs(data, 4)
    model = small_model(data)
    seen = fit(model, data, epochs=2) + fit(model, data, epochs=1) + trained_on(data, epochs=1)
    assert seen == expected
    assert data.epoch == 4


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras has no steps_per_execution on torch"
)
def test_executions_of_several_steps_count_an_epoch_once():
    """Keras calls `on_epoch_end` twice for an epoch of five batches in executions of two."""
    data = numbered(shuffle=True)
    model = small_model(data, steps_per_execution=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Keras: the data ran out
        fit(model, data, epochs=2)
    assert data.epoch == 2


def test_a_pass_over_the_data_may_span_several_epochs_of_fit():
    """With `fit(steps_per_epoch=2)`, a pass over six batches takes three epochs of Keras."""
    data = numbered(24, shuffle=True)  # 6 batches
    expected = read_epochs(data, 2)
    assert trained_on(data, epochs=6, steps_per_epoch=2) == expected
    assert data.epoch == 2


def test_validation_counts_its_own_epochs():
    """Training data and validation data count separately, over three validations."""
    data, validation = numbered(shuffle=True), numbered(8, shuffle=True)
    expected = read_epochs(data, 3)
    assert trained_on(data, epochs=3, validation_data=validation) == expected
    assert (data.epoch, validation.epoch) == (3, 3)


def test_an_interrupted_fit_can_be_repeated():
    """An exception in the middle of an epoch leaves `data.epoch` at that epoch."""
    data = numbered(shuffle=True)
    expected = read_epochs(data, 2)

    def interrupt(batch, logs):
        if batch == 2:
            raise KeyboardInterrupt

    stop = keras.callbacks.LambdaCallback(on_train_batch_end=interrupt)
    with pytest.raises(KeyboardInterrupt):
        trained_on(data, callbacks=[stop])
    assert data.epoch == 0
    assert trained_on(data, epochs=2) == expected


def test_resuming_continues_with_the_batches_of_the_epoch(tmp_path):
    """The resumed training receives the batches that the uninterrupted one would receive."""
    expected = read_epochs(numbered(shuffle=True), 3)

    def interrupt(epoch, logs):
        if epoch == 1:
            raise KeyboardInterrupt

    data = numbered(shuffle=True)
    stop = keras.callbacks.LambdaCallback(on_epoch_begin=interrupt)
    with pytest.raises(KeyboardInterrupt):
        trained_on(data, epochs=3, callbacks=[Resume(tmp_path, data), stop])
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


def test_concurrent_readers_get_the_batches_of_a_single_reader():
    """Twenty threads read five batches, as Keras's workers do through a wrapper."""
    data = numbered(shuffle=True)
    expected = read_epochs(data, 1)
    labels = {}

    def read(index):
        labels[index] = data[index][1].tolist()

    threads = [threading.Thread(target=read, args=(k % 5,)) for k in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [labels[k] for k in range(5)] == expected


def test_fit_with_shuffle_warns_and_only_reorders_the_batches():
    """`fit` shuffles the order of batches by default; the batches themselves are unchanged."""
    data = numbered(40, shuffle=True)
    expected = read_epochs(data, 1)
    random.seed(0)
    with pytest.warns(UserWarning, match="shuffle=False"):
        seen = trained_on(data, epochs=1, shuffle=True)
    assert seen != expected
    assert sorted(seen) == sorted(expected)
