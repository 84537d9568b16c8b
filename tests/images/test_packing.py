"""Packed patches: the size of an image, its patches, and the arrays of other libraries."""

import numpy as np
import pytest

from keras_vit.errors import ConfigError
from keras_vit.images.packing import fit_to_patches, pack, pack_image
from tests import torchvision_shim  # noqa: F401
from tests.plain import normal, raises

SIZES = [(480, 640), (640, 480), (100, 1000), (16, 16), (5, 7000), (333, 334), (3000, 2000), (1, 1)]


@pytest.mark.parametrize("most", [16, 256, 576, 1000])
@pytest.mark.parametrize("patch", [14, 16])
def test_an_image_is_resized_as_transformers_and_timm_resize_it(patch, most):
    """To the same whole patches, for every aspect."""
    siglip2 = pytest.importorskip("transformers.models.siglip2.image_processing_pil_siglip2")
    naflex = pytest.importorskip("timm.data.naflex_transforms")
    for size in SIZES:
        found = fit_to_patches(size, (patch, patch), most)
        assert found == siglip2.get_image_size_for_max_num_patches(*size, patch, most)
        if found != (patch, patch) and min(size) > 1:  # timm refuses to enlarge by 100
            assert found == naflex.get_image_size_for_seq(size, patch, most)[1]


def test_patches_lie_row_by_row_with_their_places_and_padding():
    """Behind the pixels of a patch stand its row and its column; padding is 0 and -1."""
    image = normal(4, 9, 3)
    packed = pack_image(image, (2, 3), 8)
    assert packed.shape == (8, 20)
    np.testing.assert_array_equal(packed[4, :-2].reshape(2, 3, 3), image[2:4, 3:6])
    np.testing.assert_array_equal(packed[4, -2:], (1, 1))
    assert not packed[6:, :-2].any() and (packed[6:, -2:] == -1).all()


def test_more_patches_than_the_limit_are_refused():
    """The message names the image, its shape, the limit and the argument that raises it."""
    with raises(ConfigError, "Image 1", "2x3 patches", "1 to 4", "image_size="):
        pack(np.zeros((2, 6, 12)), [(1, 4), (2, 3)], most=4)


@pytest.mark.parametrize("mask", [[[1, 1, 1, 0, 0, 0]], [[1, 1, 1, 0, 1, 0]]])
def test_a_shape_that_disagrees_with_the_mask_is_refused(mask):
    """By number or by place."""
    with raises(ConfigError, "Image 0", "2x2 patches", "mask", "first 4"):
        pack(np.zeros((1, 6, 12)), [(2, 2)], most=6, mask=mask)


def test_arrays_of_other_axes_are_refused():
    """The message names the axes expected and found."""
    with raises(ConfigError, "(batch, patches, numbers of a patch)", "(2, 8, 8, 3)"):
        pack(np.zeros((2, 8, 8, 3)), [(2, 2), (2, 2)], most=4)
