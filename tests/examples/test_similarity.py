"""The figures of examples/paper/similarity.py, against their definitions in NumPy."""

import keras
import numpy as np
import pytest

from tests.examples import load
from tests.helpers import random_tiny
from tests.plain import normal

EXAMPLE = load("paper/similarity.py")
block_similarity = EXAMPLE["block_similarity"]
few_shot_curve = EXAMPLE["few_shot_curve"]
receptive_field = EXAMPLE["receptive_field"]


def alignment(x, y):
    """Unbiased centred kernel alignment, sum by sum (Song et al. 2012, Eq. 5)."""

    def criterion(k, m):
        n = len(k)
        k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
        one = np.ones(n)
        return (
            np.trace(k @ m)
            + (one @ k @ one) * (one @ m @ one) / (n - 1) / (n - 2)
            - 2 / (n - 2) * (one @ k @ m @ one)
        ) / (n * (n - 3))

    k, m = x @ x.T, y @ y.T
    return criterion(k, m) / np.sqrt(criterion(k, k) * criterion(m, m))


def flat_tokens(model, images, block):
    part = keras.Model(model.input, model.get_layer(f"block_{block}").output)
    return part.predict(images, verbose=0)[:, 1:].reshape(len(images), -1).astype("float64")


def test_block_similarity_equals_its_definition():
    """For one batch; several batches estimate the same value; a model is similar to itself."""
    model, other = random_tiny(num_layers=2), random_tiny(num_layers=1, hidden_size=24)
    images = normal(9, 16, 16, 3)
    result = block_similarity(model, images, other)
    assert result.shape == (2, 1)
    for block in range(2):
        expected = alignment(flat_tokens(model, images, block), flat_tokens(other, images, 0))
        np.testing.assert_allclose(result[block, 0], expected, rtol=1e-4)
    same = block_similarity(model, images, batch_size=5)  # 5 and 4
    np.testing.assert_allclose(np.diag(same), 1, rtol=1e-6)
    np.testing.assert_allclose(same, same.T, rtol=1e-6)


def test_the_receptive_field_is_the_derivative_by_each_pixel():
    """It equals finite differences; without attention it is a single patch."""
    model = random_tiny(num_layers=1, image_size=16)
    images = normal(1, 16, 16, 3)
    result = receptive_field(model, images, ["block_0"], patch=(0, 1))["block_0"]
    np.testing.assert_allclose(result.sum(), 1, rtol=1e-5)
    part = keras.Model(model.input, model.get_layer("block_0").output)

    def slope(y, x):
        moved = images.repeat(6, axis=0).astype("float64")
        for k, step in enumerate((0.01, -0.01)):
            moved[k::2, y, x] += step * np.eye(3)
        sums = part.predict(moved, verbose=0)[:, 2].astype("float64").sum(axis=-1)
        return np.abs(sums[::2] - sums[1::2]).sum()

    near, far = slope(3, 9), slope(12, 2)
    np.testing.assert_allclose(result[12, 2] / result[3, 9], far / near, rtol=5e-2)
    attention = model.get_layer("block_0").attention.out.kernel
    attention.assign(np.zeros(attention.shape))  # attention mixes no patches
    alone = receptive_field(model, images, ["block_0"], patch=(0, 1))["block_0"]
    assert alone[:8, 8:].sum() == pytest.approx(1)


def test_the_example_writes_its_pictures(tmp_path):
    """Of vit_digits and of the same model before training."""
    EXAMPLE["draw"](tmp_path)
    names = ("few_shot_random", "few_shot_trained", "fields_random", "fields_trained")
    assert {path.stem for path in tmp_path.glob("*.png")} == {"alignment", *names}
