"""Random crops and flips against plain formulas."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.data.crops import crop_and_resize, flip, random_box
from keras_vit.images.resampling import resize_bilinear

SIZES = [(100, 150), (37, 20), (1, 60), (224, 224)]


@pytest.mark.parametrize("size", SIZES)
def test_a_box_lies_in_the_image_and_has_the_area_asked_for(size):
    """300 boxes: each lies inside and has 5 to 50 % of the area and a ratio of 3/4 to 4/3."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        top, left, height, width = random_box(size, (0.05, 0.5), (3 / 4, 4 / 3), rng)
        assert 0 <= top <= top + height <= size[0]
        assert 0 <= left <= left + width <= size[1]
        if (height, width) == size:  # no box of those ratios fits a line
            continue
        assert height * width / (size[0] * size[1]) >= 0.05
        assert height * width / (size[0] * size[1]) <= 0.5
        assert (width - 0.5) / height <= 4 / 3
        assert (width + 0.5) / height >= 3 / 4


def test_boxes_reach_every_corner():
    """3,000 boxes touch all four sides, and their areas range from below 6 % to above 90 %."""
    rng = np.random.default_rng(0)
    boxes = np.array([random_box((60, 80), (0.05, 1.0), (3 / 4, 4 / 3), rng) for _ in range(3000)])
    assert boxes[:, :2].min() == 0
    assert (boxes[:, 0] + boxes[:, 2]).max() == 60
    assert (boxes[:, 1] + boxes[:, 3]).max() == 80
    areas = boxes[:, 2] * boxes[:, 3] / 4800
    assert areas.min() < 0.06
    assert areas.max() > 0.9


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("box", [(3, 5, 31, 22), (0, 0, 40, 50), (10, 10, 4, 3)])
def test_pillow_resizes_as_tensorflow_does(mode, box):
    """Bilinear with half-pixel centres, without antialias, rounded down to integers."""
    shape = (40, 50) if mode == "L" else (40, 50, len(mode))
    pixels = np.random.default_rng(0).integers(0, 256, shape, "uint8")
    top, left, height, width = box
    part = pixels.reshape(40, 50, -1)[top : top + height, left : left + width]
    expected = resize_bilinear(part, (16, 24))
    resized = np.asarray(crop_and_resize(Image.fromarray(pixels, mode), box, (16, 24)))
    below = expected - resized.reshape(16, 24, -1)
    assert below.min() > -1e-3
    assert below.max() < 1 + 1e-3
    array = crop_and_resize(pixels.reshape(40, 50, -1), box, (16, 24))
    np.testing.assert_array_equal(array, expected.astype("uint8"))


def test_float_arrays_are_not_rounded():
    """Float pixels are resized without being rounded to integers."""
    pixels = np.random.default_rng(0).uniform(0, 255, (9, 9, 5)).astype("float32")
    resized = crop_and_resize(pixels, (1, 2, 6, 5), (12, 12))
    np.testing.assert_array_equal(resized, resize_bilinear(pixels[1:7, 2:7], (12, 12)))


def test_a_flip_swaps_left_and_right():
    """For an array and for a PIL image."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), "uint8")
    np.testing.assert_array_equal(flip(pixels), pixels[:, ::-1])
    np.testing.assert_array_equal(np.asarray(flip(Image.fromarray(pixels))), pixels[:, ::-1])
