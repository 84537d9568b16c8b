"""Muon against NumPy, optax and torch, and on the matrices of a model."""

import keras
import numpy as np
import pytest

from keras_vit.training import AugregRecipe, LayerwiseMuon, TransferRecipe
from tests.helpers import assert_close, normal, random_tiny, to_numpy
from tests.training.updates import after_each


def orthogonal(matrix):
    """Five Newton-Schulz iterations of the reference, in float64."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / np.linalg.norm(x)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def muon(weight, gradients, rate, decay, shape):
    """The weights after each step of Muon with momentum 0.95, as one matrix `shape`."""
    trace, weights = np.zeros(shape), []
    weight = weight.reshape(shape).astype("float64")
    for gradient in gradients.reshape(-1, *shape).astype("float64"):
        trace = 0.95 * trace + gradient
        step = 0.2 * np.sqrt(max(shape)) * orthogonal(gradient + 0.95 * trace)
        weight = weight - rate * (step + decay * weight)
        weights.append(weight)
    return np.stack(weights)


MATRICES = {
    "block_0/attention/query/kernel": (8, 8),
    "block_0/attention/key/kernel": (8, 8),
    "block_0/attention/value/kernel": (8, 8),
    "block_0/attention/out/kernel": (8, 8),
    "block_0/mlp/dense_0/kernel": (8, 16),
    "block_0/mlp/dense_1/kernel": (16, 8),
}


def test_every_kernel_of_a_block_moves_as_in_numpy():
    """Each kernel moves as the matrix of its product; the others move by AdamW alone."""
    model = random_tiny(num_layers=1, hidden_size=8, mlp_dim=16)
    weights = model.trainable_variables
    start = {weight.path: to_numpy(weight) for weight in weights}
    gradients = [normal(5, *weight.shape, seed=k) for k, weight in enumerate(weights)]
    optimizer = LayerwiseMuon(0.01, weight_decay=0.1)
    moved = after_each(optimizer, weights, gradients)
    seen = set()
    for weight, values, gradient in zip(weights, moved, gradients, strict=True):
        if shape := MATRICES.get(weight.path):
            expected = muon(start[weight.path], gradient, 0.01, 0.1, shape)
            assert_close(values.reshape(expected.shape), expected, 2e-6)
            seen.add(weight.path)
    assert seen == set(MATRICES)
    assert {w.path for w, m in zip(weights, optimizer.is_matrix, strict=True) if m} == seen


def test_other_variables_move_as_by_adamw():
    from keras_vit.training import LayerwiseAdamW

    moved = []
    for kind in (LayerwiseMuon, LayerwiseAdamW):
        model = random_tiny(num_layers=1, hidden_size=8, mlp_dim=16)
        weights = [w for w in model.trainable_variables if w.path not in MATRICES]
        gradients = [normal(3, *weight.shape, seed=k) for k, weight in enumerate(weights)]
        moved.append(after_each(kind(0.01, weight_decay=0.1), weights, gradients))
    for ours, adamw in zip(*moved, strict=True):
        np.testing.assert_array_equal(ours, adamw)


def test_a_matrix_moves_as_by_torch():
    """`torch.optim.Muon` orthogonalises in bfloat16, so the steps agree to that precision."""
    torch = pytest.importorskip("torch")
    start, gradients = normal(8, 16), normal(4, 8, 16, seed=1)
    weight = torch.nn.Parameter(torch.tensor(start))
    theirs = torch.optim.Muon([weight], 0.02, 0.1, adjust_lr_fn="match_rms_adamw")
    variable = keras.Variable(start, name="kernel")
    optimizer = LayerwiseMuon(0.02, weight_decay=0.1, matrices="kernel")
    ours = after_each(optimizer, [variable], [gradients])[0]
    for gradient, found in zip(gradients, ours, strict=True):
        weight.grad = torch.tensor(gradient)
        theirs.step()
        assert np.abs(found - weight.detach().numpy()).max() < 2e-3


@pytest.mark.parametrize("recipe", [TransferRecipe, AugregRecipe])
def test_a_recipe_with_muon_lowers_the_loss(recipe):
    model = random_tiny(num_layers=2, hidden_size=8, mlp_dim=16, num_classes=3)
    images, labels = normal(12, 16, 16, 3), np.arange(12) % 3
    chosen = recipe(20, 12, optimizer="muon", one_hot=False, steps_per_epoch=1)
    assert chosen.settings["learning_rate"] == 0.001
    model.compile(**chosen.compile_args(model))
    losses = model.fit(images, labels, batch_size=12, verbose=0, **chosen.fit_args(model)).history[
        "loss"
    ]
    assert losses[-1] < 0.8 * losses[0]


def test_the_optimizer_is_rebuilt_from_its_config():
    optimizer = LayerwiseMuon(0.02, momentum=0.9, matrices="mlp/.*kernel$", decays="kernel$")
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is LayerwiseMuon
    assert copy.get_config() == optimizer.get_config()
