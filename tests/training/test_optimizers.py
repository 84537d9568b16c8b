"""What the optimizers rest on in Keras, and the state that they keep."""

import keras
import numpy as np
import pytest

from keras_vit.training import LayerwiseSGD
from tests.helpers import normal, to_numpy


def test_canary_keras_decays_all_variables_at_one_rate():
    """Fails when Keras's decay follows a rate per variable: simplify optimizers.py then."""
    variable = keras.Variable(np.ones((2,), "float32"))
    optimizer = keras.optimizers.SGD(0.5, weight_decay=0.1)
    optimizer.build([variable])
    optimizer.apply([keras.ops.zeros((2,))])
    np.testing.assert_allclose(to_numpy(variable), [0.95, 0.95], rtol=1e-6)


@pytest.mark.on_one_backend("jax")
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


@pytest.mark.parametrize(
    ("options", "most"),
    [({"clipnorm": 1.0}, "norm"), ({"clipvalue": 0.1}, "value"), ({"global_clipnorm": 1.0}, "all")],
    ids=str,
)
def test_gradients_are_clipped_as_keras_clips_them(options, most):
    """One step of SGD without momentum subtracts the clipped gradients."""
    moved = []
    for kind in (LayerwiseSGD, keras.optimizers.SGD):
        weights = [keras.Variable(np.zeros((2, 3), "float32")) for _ in range(2)]
        optimizer = kind(1.0, **options)
        optimizer.build(weights)
        gradients = [keras.ops.convert_to_tensor(normal(2, 3, seed=k)) for k in range(2)]
        optimizer.apply(gradients, weights)
        moved.append([to_numpy(weight) for weight in weights])
    np.testing.assert_allclose(moved[0], moved[1], rtol=1e-6)


def test_a_weight_without_a_gradient_stays():
    """A warning names it; without any gradient there is an error."""
    weights = [keras.Variable(np.ones((2,), "float32"), name=name) for name in ("a", "b")]
    optimizer = LayerwiseSGD(0.5, momentum=0.9)
    optimizer.build(weights)
    with pytest.warns(UserWarning, match="'b'"):
        optimizer.apply([keras.ops.ones((2,)), None], weights)
    np.testing.assert_allclose(to_numpy(weights[0]), [0.5, 0.5])
    np.testing.assert_allclose(to_numpy(weights[1]), [1, 1])
    with pytest.raises(ValueError, match="No gradients"):
        optimizer.apply([None, None], weights)


def test_a_loss_scale_and_a_constraint_are_applied():
    """As `keras.optimizers.Optimizer.apply` does."""
    weight = keras.Variable(np.ones((2,), "float32"))
    weight.constraint = keras.constraints.NonNeg()
    optimizer = LayerwiseSGD(1.0, loss_scale_factor=4.0)
    optimizer.apply([keras.ops.convert_to_tensor([2.0, 8.0])], [weight])
    np.testing.assert_allclose(to_numpy(weight), [0.5, 0])


def test_a_config_of_version_0_1_0_is_read():
    """It may have a type for the traces, which have that of the weights now."""
    config = {**LayerwiseSGD(0.1, momentum=0.9).get_config(), "momentum_dtype": "bfloat16"}
    assert LayerwiseSGD.from_config(config).momentum == 0.9
