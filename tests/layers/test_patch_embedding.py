"""The patch embedding against a matrix product of flattened patches."""

import numpy as np
import pytest

from keras_vit.layers import PatchEmbedding
from tests.helpers import assert_close, normal, randomise, run, weights_of


def built(images, patch_size, **arguments):
    """A layer with `hidden_size=8` and random weights, built for the images."""
    arguments = {"data_format": "channels_last", **arguments}
    layer = PatchEmbedding(8, patch_size, name="patch_embedding", **arguments)
    layer.build(images.shape)
    return randomise(layer)


def expected(images, layer):
    """x_p E of Eq. 1, patch by patch, `(batch, rows, columns, 8)`."""
    w = weights_of(layer)
    height, width = w["kernel"].shape[:2]
    rows, columns = images.shape[1] // height, images.shape[2] // width
    kernel = w["kernel"].reshape(-1, 8)
    return np.stack([
        np.stack([
            images[:, r * height : (r + 1) * height, c * width : (c + 1) * width].reshape(
                len(images), -1
            ) @ kernel + w["bias"]
            for c in range(columns)
        ], axis=1)
        for r in range(rows)
    ], axis=1)  # fmt: skip


@pytest.mark.parametrize(("flatten", "grid"), [(True, (6,)), (False, (2, 3))])
def test_every_patch_is_projected_in_reading_order(flatten, grid):
    """From top to bottom along the rows of the grid, which `flatten` makes one axis."""
    images = normal(2, 4, 9, 3)
    layer = built(images, (2, 3), flatten=flatten)
    assert_close(run(layer, images), expected(images, layer).reshape(2, *grid, 8))


def test_pixels_that_fill_no_patch_are_dropped():
    """Pixels at the right and the bottom, as in the reference's VALID convolution."""
    images = normal(2, 5, 11, 3)
    layer = built(images, (2, 3))
    np.testing.assert_array_equal(run(layer, images), run(layer, images[:, :4, :9]))


def test_an_int_patch_size_is_a_square_patch():
    """`patch_size=2` is `(2, 2)`."""
    images = normal(1, 4, 4, 1)
    layer = built(images, 2)
    assert layer.patch_size == (2, 2)
    assert weights_of(layer)["kernel"].shape == (2, 2, 1, 8)
    assert layer(images).shape == (1, 4, 8)
