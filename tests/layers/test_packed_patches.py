"""Packed patches, taken apart in the graph."""

import keras
import numpy as np

from keras_vit.images.packing import pack_image
from keras_vit.layers.packed_patches import UnpackPatches
from tests.helpers import normal, numpy_of

IMAGES = [normal(4, 9, 2, seed=1), normal(6, 3, 2, seed=2)]


def packed():
    """Two images of patches of 2x3 pixels, padded to 8 patches."""
    return np.stack([pack_image(image, (2, 3), 8) for image in IMAGES])


def test_pixels_places_and_mask_are_those_of_the_images():
    """Patches lie below each other; the mask begins with the tokens before the patches."""
    pixels, places, mask = map(numpy_of, UnpackPatches((2, 3), 2, num_prefix_tokens=1)(packed()))
    assert pixels.shape == (2, 16, 3, 2)
    np.testing.assert_array_equal(pixels[0, 8:10], IMAGES[0][2:4, 3:6])
    np.testing.assert_array_equal(places[0, :7], [*np.argwhere(np.ones((2, 3))), (-1, -1)])
    np.testing.assert_array_equal(mask.sum(axis=1), [7, 4])
    assert mask[:, 0].all()


def test_symbolic_outputs_have_the_shapes_and_types_of_real_ones():
    """Also in a functional model that was saved."""
    layer = UnpackPatches((2, 3), 2, num_prefix_tokens=1)
    symbols, values = layer(keras.Input((8, 14))), layer(packed())
    for symbol, value in zip(symbols, values, strict=True):
        assert tuple(symbol.shape[1:]) == tuple(value.shape[1:])
        assert symbol.dtype == keras.backend.standardize_dtype(value.dtype)
    revived = UnpackPatches.from_config(layer.get_config())
    np.testing.assert_array_equal(numpy_of(revived(packed())[0]), numpy_of(values[0]))
