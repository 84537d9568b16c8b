"""The figures of examples/paper/similarity.py, against their definitions in NumPy."""

import runpy
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.evaluation import few_shot
from tests.helpers import random_tiny
from tests.plain import normal

# NumPy makes it of tokens or features.
not_by_backend = pytest.mark.on_backend("torch")
FILE = Path(__file__).parents[2] / "examples" / "paper" / "similarity.py"
EXAMPLE = runpy.run_path(str(FILE))
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


@not_by_backend
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
    with pytest.raises(ConfigError, match="3 images"):
        block_similarity(model, images[:3])


def test_the_receptive_field_is_the_derivative_by_each_pixel():
    """It equals finite differences; without attention it is a single patch."""
    model = random_tiny(num_layers=1, image_size=16)
    images = normal(1, 16, 16, 3)
    result = receptive_field(model, images, ["block_0"], patch=(0, 1))["block_0"]
    np.testing.assert_allclose(result.sum(), 1, rtol=1e-5)
    part = keras.Model(model.input, model.get_layer("block_0").output)

    def slope(y, x):
        total = 0
        for channel in range(3):
            steps = []
            for sign in (1, -1):
                moved = images.astype("float64")
                moved[0, y, x, channel] += sign * 0.01
                steps.append(part.predict(moved, verbose=0)[0, 2].astype("float64").sum())
            total += abs(steps[0] - steps[1]) / 0.02
        return total

    near, far = slope(3, 9), slope(12, 2)
    np.testing.assert_allclose(result[12, 2] / result[3, 9], far / near, rtol=5e-2)
    attention = model.get_layer("block_0").attention.out.kernel
    attention.assign(np.zeros(attention.shape))  # attention mixes no patches
    alone = receptive_field(model, images, ["block_0"], patch=(0, 1))["block_0"]
    assert alone[:8, 8:].sum() == pytest.approx(1)


@not_by_backend
def test_few_shot_curve_is_the_mean_and_deviation_of_few_shot():
    """Over the seeds."""
    model, images, labels = random_tiny(), normal(24, 16, 16, 3), np.arange(24) % 3
    images += labels[:, None, None, None]
    result = few_shot_curve(model, (images, labels), (images, labels), (1, 4))
    values = keras.Model(model.input, model.get_layer("pre_logits").output).predict(
        images, verbose=0
    )
    expected = few_shot((values, labels), (values, labels), (1, 4))
    assert result == {
        k: (pytest.approx(np.mean(v)), pytest.approx(np.std(v))) for k, v in expected.items()
    }


@not_by_backend
def test_the_example_writes_its_pictures(tmp_path):
    """Of vit_digits and of the same model before training."""
    EXAMPLE["draw"](tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "alignment.png",
        "few_shot_random.png",
        "few_shot_trained.png",
        "fields_random.png",
        "fields_trained.png",
    }
