"""Random crops and flips against plain formulas."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit.data.crops import crop_and_resize, flip, random_box
from keras_vit.images.resampling import resize_bilinear

SIDES = st.integers(1, 200)


@given(size=st.tuples(SIDES, SIDES), least=st.floats(0.05, 0.4), seed=st.integers(0, 99))
@settings(max_examples=300, deadline=None)
def test_a_box_lies_in_the_image_and_has_the_area_and_ratio_asked_for(size, least, seed):
    rng, area = np.random.default_rng(seed), size[0] * size[1]
    top, left, height, width = random_box(size, (least, 0.5), (3 / 4, 4 / 3), rng)
    assert 0 <= top <= top + height <= size[0]
    assert 0 <= left <= left + width <= size[1]
    if (height, width) != size:  # no box of those ratios fits a line
        assert least <= height * width / area <= 0.5
        assert (width - 0.5) / height <= 4 / 3
        assert (width + 0.5) / height >= 3 / 4


def test_boxes_reach_every_corner():
    """3,000 boxes touch all four sides, and their areas range from below 6 % to above 90 %."""
    rng = np.random.default_rng(0)
    boxes = np.array([random_box((60, 80), (0.05, 1.0), (3 / 4, 4 / 3), rng) for _ in range(3000)])
    assert boxes[:, :2].min() == 0
    assert (boxes[:, :2] + boxes[:, 2:]).max(axis=0).tolist() == [60, 80]
    areas = boxes[:, 2] * boxes[:, 3] / 4800
    assert areas.min() < 0.06
    assert areas.max() > 0.9


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("box", [(3, 5, 31, 22), (0, 0, 40, 50), (10, 10, 4, 3)])
def test_pillow_resizes_as_tensorflow_does(mode, box):
    """Bilinear with half-pixel centres, without antialias, cut to integers unless floats."""
    shape = (40, 50) if mode == "L" else (40, 50, len(mode))
    pixels = np.random.default_rng(0).integers(0, 256, shape, "uint8")
    top, left, height, width = box
    array = pixels.reshape(40, 50, -1)
    expected = resize_bilinear(array[top : top + height, left : left + width], (16, 24))
    resized = np.asarray(crop_and_resize(Image.fromarray(pixels, mode), box, (16, 24)))
    below = expected - resized.reshape(16, 24, -1)
    assert below.min() > -1e-3 and below.max() < 1 + 1e-3
    for given_pixels in (array, array.astype("float32")):
        found = crop_and_resize(given_pixels, box, (16, 24))
        np.testing.assert_array_equal(found, expected.astype(given_pixels.dtype))


def test_a_flip_swaps_left_and_right():
    """For an array and for a PIL image."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), "uint8")
    np.testing.assert_array_equal(flip(pixels), pixels[:, ::-1])
    np.testing.assert_array_equal(np.asarray(flip(Image.fromarray(pixels))), pixels[:, ::-1])
