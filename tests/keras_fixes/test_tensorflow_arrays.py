"""`predict` of an array traces no pipeline; see keras_vit/keras_fixes/tensorflow_arrays.py."""

import keras
import numpy as np
import pytest

from tests.keras_fixes.models import IMAGES, plain, vit

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="Only TensorFlow has tf.data."
)


@pytest.fixture
def traced(monkeypatch):
    """The number of functions that pipelines of tf.data were given."""
    import tensorflow as tf

    seen = []
    for name in ("map", "flat_map", "interleave"):
        method = getattr(tf.data.Dataset, name)

        def record(self, *args, method=method, **kwargs):
            seen.append(method.__name__)
            return method(self, *args, **kwargs)

        monkeypatch.setattr(tf.data.Dataset, name, record)
    return seen


def test_predict_of_an_array_traces_no_function(traced):
    vit().predict(IMAGES, batch_size=5, verbose=0)
    assert not traced


@pytest.mark.parametrize("count", [1, 5, 16])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_an_array_gives_the_outputs_of_its_batches(count, dtype):
    """Another type than the model's takes Keras's own way."""
    model, images = vit(), (10 * np.abs(IMAGES[:count])).astype(dtype)
    batches = [images[k : k + 5] for k in range(0, count, 5)]
    expected = np.concatenate([model.predict_on_batch(batch) for batch in batches])
    found = model.predict(images, batch_size=5, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_arguments_of_predict_take_effect():
    """`steps` ends a pass early, and callbacks see every batch."""
    seen = []
    callback = keras.callbacks.LambdaCallback()
    callback.on_predict_batch_end = lambda batch, logs=None: seen.append(len(logs["outputs"]))
    vit().predict(IMAGES, batch_size=6, callbacks=[callback], verbose=0)
    assert seen == [6, 6, 4]
    assert vit().predict(IMAGES, 6, 0, 2).shape == (12, 3)


def test_canary_keras_traces_functions_for_an_array(traced):
    """Fails when Keras traces none: remove tensorflow_arrays.py then."""
    plain().predict(IMAGES, verbose=0)
    assert traced, "Keras needs no function: see keras_fixes/tensorflow_arrays.py."
