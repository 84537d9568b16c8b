"""Mixup and cutmix against the formulas of their papers."""

import numpy as np
import pytest

from keras_vit.data.mixing import cutmix, mixup

BATCH, SIDE, CLASSES = 4, 12, 3


def batch(axis=1):
    rng = np.random.default_rng(0)
    shape = (BATCH, SIDE, SIDE + 2, 3) if axis == 1 else (BATCH, 3, SIDE, SIDE + 2)
    images = rng.standard_normal(shape).astype("float32")
    return images, np.eye(CLASSES, dtype="float32")[[0, 1, 2, 1]]


def test_mixup_is_the_weighted_mean_of_image_and_predecessor():
    """Eq. 1 of the paper, with one weight of at least a half for images and labels."""
    images, labels = batch()
    for seed in range(20):
        mixed, soft = mixup(images, labels, 0.5, np.random.default_rng(seed))
        weight = np.random.default_rng(seed).beta(0.5, 0.5)
        weight = max(weight, 1 - weight)
        for k in range(BATCH):
            np.testing.assert_allclose(
                mixed[k], weight * images[k] + (1 - weight) * images[k - 1], atol=1e-6
            )
            np.testing.assert_allclose(
                soft[k], weight * labels[k] + (1 - weight) * labels[k - 1], atol=1e-6
            )
        assert mixed.dtype == soft.dtype == np.float32


@pytest.mark.parametrize("axis", [1, 2])
def test_cutmix_pastes_a_box_and_weighs_the_labels_by_its_area(axis):
    """The box comes from the predecessor in the batch and has one place for all images."""
    images, labels = batch(axis)
    shares = []
    for seed in range(30):
        mixed, soft = cutmix(images, labels, 1.0, np.random.default_rng(seed), axis=axis)
        before = np.roll(images, 1, axis=0)
        pasted = np.all(mixed == before, axis=-1 if axis == 1 else 1)
        own = np.all(mixed == images, axis=-1 if axis == 1 else 1)
        assert np.all(pasted ^ own)
        assert (pasted == pasted[0]).all()
        rows, columns = pasted[0].any(axis=1), pasted[0].any(axis=0)
        np.testing.assert_array_equal(pasted[0], rows[:, None] & columns[None])
        share = pasted[0].mean()
        expected = (1 - share) * labels + share * np.roll(labels, 1, axis=0)
        np.testing.assert_allclose(soft, expected, atol=1e-6)
        shares.append(share)
    assert min(shares) < 0.2
    assert max(shares) > 0.6
