"""`remat=True` gives the same training with less memory."""

import keras
import numpy as np
import pytest

from keras_vit import kernels
from keras_vit.layers import MLP, TransformerBlock
from tests.helpers import assert_close, random_tiny, randomise, to_numpy
from tests.plain import normal
from tests.runs import sample
from tests.support.fixes.test_rematerialisation import share_of_memory

RATES = dict.fromkeys(("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"), 0.3)


def one_step(model, inputs):
    """The loss and gradients of one SGD step, and the state of every seed after it."""
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=keras.backend.backend() == "jax")
    before = [to_numpy(weight) for weight in model.trainable_weights]
    targets = np.ones((len(inputs), *model.output_shape[1:]), "float32")
    loss = model.train_on_batch(inputs, targets)
    after = [to_numpy(weight) for weight in model.trainable_weights]
    weights = {id(weight) for weight in model.weights}
    seeds = [
        keras.ops.convert_to_numpy(variable)
        for variable in model.variables
        if id(variable) not in weights and "seed" in variable.path
    ]
    gradients = [old - new for old, new in zip(before, after, strict=True)]
    return float(np.asarray(loss).reshape(-1)[0]), gradients, seeds


def block_used_twice(**fields):
    """One block that is applied twice, and so draws twice in a step."""
    keras.utils.set_random_seed(0)
    block = TransformerBlock(2, 8, name="block", **fields)
    tokens = keras.Input((3, 8))
    return randomise(keras.Model(tokens, block(block(tokens))))


@pytest.mark.every_backend
@pytest.mark.parametrize("dtype", sample(("float32", "mixed_bfloat16"), "float32"))
def test_gradients_and_draws_equal_those_without_remat(dtype):
    """The second run of a block drops the same values and does not advance the seeds."""
    fields, inputs = {**RATES, "dtype": dtype}, normal(6, 3, 8)
    loss, gradients, seeds = one_step(block_used_twice(**fields), inputs)
    again, others, after = one_step(block_used_twice(**fields, remat=True), inputs)
    # TensorFlow adds 16-bit numbers in another order.
    tolerance = 1e-6 if dtype == "float32" else 1e-2
    assert_close(np.array([again]), np.array([loss]), tolerance)
    largest = max(np.abs(gradient).max() for gradient in gradients)
    for actual, expected in zip(others, gradients, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * largest)
    np.testing.assert_array_equal(after, seeds)


def test_blocks_are_computed_again_in_training_alone(monkeypatch):
    """`kernels.remat` is called once per block in training, and never in inference."""
    calls = []
    remat = kernels.remat
    monkeypatch.setattr(kernels, "remat", lambda *given: calls.append(1) or remat(*given))
    model, inputs = random_tiny(num_layers=3, remat=True), normal(2, 16, 16, 3)
    expected = to_numpy(model(inputs))
    assert not calls
    assert_close(model(inputs, training=True), expected)
    assert len(calls) == 3


# The test reads what XLA's compiler reserves.
@pytest.mark.on_backend("jax")
def test_xla_does_not_merge_the_second_run_with_the_first():
    """A gradient needs less than half of its memory."""
    assert share_of_memory(lambda function: kernels.remat(function, None)) < 0.5


@pytest.mark.on_backend("torch")
def test_torch_gradients_of_a_remat_layer_equal_those_of_the_layer():
    """By inputs or weights alone, repeatedly on one graph, and of second order."""
    import torch

    x = torch.from_numpy(normal(2, 3, 8))
    dy = torch.from_numpy(normal(2, 3, 8, seed=1))

    mlp = MLP(8)
    mlp.build(x.shape)
    weights = [weight.value for weight in randomise(mlp).trainable_weights]

    def found(function):
        at = x.clone().requires_grad_()
        by_weights = torch.autograd.grad(function(x), weights, dy)
        y = function(at)
        (by_inputs,) = torch.autograd.grad(y, at, dy, retain_graph=True)
        (once_more,) = torch.autograd.grad(y, at, dy, create_graph=True)
        seconds = torch.autograd.grad(once_more.square().sum(), [at, weights[0]])
        return [*by_weights, by_inputs, once_more, *seconds]

    for gradient, expected in zip(found(kernels.remat(mlp, mlp)), found(mlp), strict=True):
        assert_close(gradient.detach(), expected.detach().numpy(), 1e-5)
