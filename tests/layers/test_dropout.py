"""`Dropout` equals Keras's Dropout except for the name of its seed state."""

import keras
import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.layers.dropout import Dropout
from tests.helpers import run, tiny, to_numpy

pytestmark = pytest.mark.every_backend

RATES = dict.fromkeys(("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"), 0.1)


def test_dropout_with_a_seed_drops_the_values_that_keras_drops():
    """Also after a round trip of its config."""
    x = np.ones((40, 50), "float32")
    for noise_shape in (None, (40, 1)):
        arguments = {"rate": 0.3, "noise_shape": noise_shape, "seed": 3}
        expected = run(keras.layers.Dropout(**arguments), x, training=True)
        layer = Dropout(**arguments)
        np.testing.assert_array_equal(run(layer, x, training=True), expected)
        again = Dropout.from_config(layer.get_config())
        np.testing.assert_array_equal(run(again, x, training=True), expected)
    np.testing.assert_array_equal(to_numpy(Dropout(0.3)(x)), x)
    with pytest.raises(ConfigError, match=r"rate must be in \[0, 1\], found 1.5"):
        Dropout(1.5)


def test_equal_models_have_equal_variable_paths():
    """Seed generators too, whichever models were made before; no two paths are equal."""
    models = [tiny(**RATES) for _ in range(2)]
    paths = [[variable.path for variable in model.variables] for model in models]
    assert paths[0] == paths[1]
    assert len(set(paths[0])) == len(paths[0])
    assert sum("seed" in path for path in paths[0]) == 4


# This way of saving is torch's.
@pytest.mark.on_backend("torch")
def test_an_equal_model_loads_the_state_dict_of_a_model():
    """Its dropout then draws the same numbers."""
    first, second = tiny(**RATES), tiny(**RATES)
    images = np.ones((2, 16, 16, 3), "float32")
    second.load_state_dict(first.state_dict())
    outputs = [to_numpy(model(images, training=True)) for model in (first, second)]
    np.testing.assert_array_equal(*outputs)
