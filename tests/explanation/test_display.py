"""Brightness of maps and colours of patches."""

import numpy as np

from keras_vit.explanation import brightness, foreground, patch_colours

RNG = np.random.default_rng(0)


def test_a_patch_far_above_the_others_leaves_them_light():
    """As the rollout of a trained model, where one patch has most of the attention."""
    map_ = RNG.uniform(0.5, 1, (2, 16, 16))
    map_[:, 3, 4] = 1000
    light = brightness(map_)
    assert light.max() == 1 and light.min() == 0
    assert 0.4 < np.median(light[0]) < 0.6
    order = np.argsort(map_[0].ravel())
    assert (np.diff(light[0].ravel()[order]) >= 0).all()


def test_brightness_is_zero_for_equal_and_for_negative_values():
    """A single patch above zero is light: most percentiles are zero then."""
    assert not brightness(np.full((4, 4), 3.0)).any()
    assert not brightness(-RNG.uniform(size=(4, 4))).any()
    single = np.zeros((16, 16))
    single[2, 5] = 1e-6
    np.testing.assert_array_equal(brightness(single), single / 1e-6)


def test_the_object_of_images_is_found_and_coloured():
    """The foreground is the component that avoids the border; its parts have different colours,
    alike in both images, and the background is black. One patch has a norm far above all."""
    object_, grass, part = RNG.standard_normal((3, 24))
    patches = np.tile(grass, (2, 8, 8, 1))
    patches[0, 2:6, 2:6], patches[1, 1:5, 3:7] = object_, object_
    patches[0, 2:6, 4:6] += part
    patches[1, 1:5, 5:7] += part
    is_object = (patches != grass).any(axis=-1)
    patches += 0.05 * RNG.standard_normal(patches.shape)
    patches[0, 0, 0] *= 50
    np.testing.assert_array_equal(foreground(patches), is_object)
    colours = patch_colours(patches, is_object)
    assert colours.shape == (2, 8, 8, 3) and not colours[~is_object].any()
    left, right = ([colours[0, 2:6, k : k + 2], colours[1, 1:5, k + 1 : k + 3]] for k in (2, 4))
    assert abs(left[0].mean((0, 1)) - left[1].mean((0, 1)))[0] < 0.15
    assert abs(left[0].mean((0, 1)) - right[0].mean((0, 1)))[0] > 0.6
    few = patch_colours(RNG.standard_normal((1, 4, 4, 2)))  # an encoder of two numbers per patch
    assert few[..., :2].any() and not few[..., 2].any()
