"""Mixup and cutmix against the formulas of their papers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.data.mixing import cutmix, mixup
from tests.plain import normal

LABELS = np.eye(3, dtype="float32")[[0, 1, 2, 1]]


@given(seed=st.integers(0, 999), alpha=st.floats(0.1, 2))
@settings(max_examples=20, deadline=None)
def test_mixup_is_the_weighted_mean_of_image_and_predecessor(seed, alpha):
    """Eq. 1 of the paper, with one weight of at least a half for images and labels."""
    images = normal(4, 12, 14, 3)
    mixed = mixup(images, LABELS, alpha, np.random.default_rng(seed))
    weight = np.random.default_rng(seed).beta(alpha, alpha)
    weight = max(weight, 1 - weight)
    for found, values in zip(mixed, (images, LABELS), strict=True):
        expected = [weight * values[k] + (1 - weight) * values[k - 1] for k in range(4)]
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert found.dtype == np.float32


@pytest.mark.parametrize("axis", [1, 2])
def test_cutmix_pastes_a_box_and_weighs_the_labels_by_its_area(axis):
    """The box comes from the predecessor in the batch and has one place for all images."""
    images = normal(*((4, 12, 14, 3) if axis == 1 else (4, 3, 12, 14)))
    shares = []
    for seed in range(30):
        mixed, soft = cutmix(images, LABELS, 1.0, np.random.default_rng(seed), axis=axis)
        before = np.roll(images, 1, axis=0)
        pasted, own = (
            np.all(mixed == each, axis=-1 if axis == 1 else 1) for each in (before, images)
        )
        assert np.all(pasted ^ own)
        assert (pasted == pasted[0]).all()
        rows, columns = pasted[0].any(axis=1), pasted[0].any(axis=0)
        np.testing.assert_array_equal(pasted[0], rows[:, None] & columns[None])
        share = pasted[0].mean()
        expected = (1 - share) * LABELS + share * np.roll(LABELS, 1, axis=0)
        np.testing.assert_allclose(soft, expected, atol=1e-6)
        shares.append(share)
    assert min(shares) < 0.2
    assert max(shares) > 0.6
