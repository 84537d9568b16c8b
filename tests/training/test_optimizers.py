"""What the optimizers rest on in Keras."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.every_backend


@pytest.mark.on_backend("jax")
@pytest.mark.filterwarnings("ignore")
def test_canary_keras_shares_the_averages_of_the_weights():
    """Fails when the fault is gone: remove `finalize_variable_values` of optimizers.py then.

    Expected: a model whose optimizer has `use_ema=True` is trained by two calls of `fit`.
    Found: the second call fails, because an array of the averages is also that of a weight, and
    JAX cannot take it over twice ("Attempt to donate the same buffer twice").
    Remedy: assign copies in `Optimizer.finalize_variable_values`.
    """
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    arrays = np.ones((8, 4), "float32"), np.ones((8, 3), "float32")
    model.fit(*arrays, verbose=0)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        model.fit(*arrays, verbose=0)
