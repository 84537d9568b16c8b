"""The sixteen operations of RandAugment against their formulas in NumPy."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.data.randaugment import OPERATIONS, randaugment

LEVELS = (0.0, 1.0, 1.5, 2.0)


class Always:
    """A random generator that draws the given places, and always the positive direction."""

    def __init__(self, *places):
        self.places = list(places)

    def random(self):
        return 0.0

    def integers(self, _):
        return self.places.pop(0)


def photo(*size):
    """Noise between 30 and 220, a range that every operation changes."""
    return np.random.default_rng(0).integers(30, 220, (*(size or (20, 30)), 3), "uint8")


def apply(name, pixels, level, rng=None):
    return np.asarray(OPERATIONS[name](Image.fromarray(pixels), level, rng or Always())).astype(int)


def grey(pixels):
    return (pixels @ [0.299, 0.587, 0.114])[..., None]


def smooth(pixels):
    """The mean of each pixel and its eight neighbours, in which the pixel counts five times."""
    result = pixels.astype(float)
    windows = np.lib.stride_tricks.sliding_window_view(result.copy(), (3, 3), axis=(0, 1))
    result[1:-1, 1:-1] = (windows.sum(axis=(-1, -2)) + 4.0 * pixels[1:-1, 1:-1]) / 13
    return result


def stretched(pixels):
    low, high = pixels.min((0, 1)).astype(float), pixels.max((0, 1)).astype(float)
    return (pixels - low) * 255 / (high - low)


def equalized(pixels):
    result = pixels.copy()
    for k in range(3):
        counts = np.bincount(pixels[..., k].ravel(), minlength=256)
        step = (pixels[..., k].size - counts[counts > 0][-1]) // 255
        before = np.cumsum(counts) - counts
        result[..., k] = np.clip((before + step // 2) // step, 0, 255)[pixels[..., k]]
    return result


def bits(level):
    return 8 - np.clip(int(4 * level), 1, 8)


OF_VALUES = {
    "Invert": lambda p, level: 255 - p,
    "Posterize": lambda p, level: p >> bits(level) << bits(level),
    "Solarize": lambda p, level: np.where(p < int(256 * level), p, 255 - p),
    "SolarizeAdd": lambda p, level: np.where(p < 128, np.clip(p + int(110 * level), 0, 255), p),
    "Equalize": lambda p, level: equalized(p),
    "AutoContrast": lambda p, level: stretched(p),  # rounded
}
DEGENERATE = {
    "Color": grey,
    "Contrast": lambda pixels: grey(pixels).mean(),
    "Brightness": lambda pixels: 0.0,
    "Sharpness": smooth,
}
SOURCES = {
    "ShearX": lambda y, x, level: (y, x + 0.3 * level * y),
    "ShearY": lambda y, x, level: (y + 0.3 * level * x, x),
    "TranslateX": lambda y, x, level: (y, x + 100 * level * 30 / 224),
    "TranslateY": lambda y, x, level: (y + 100 * level * 20 / 224, x),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", OF_VALUES)
def test_each_value_is_mapped_by_the_formula_of_the_operation(name, level):
    expected = OF_VALUES[name](photo().astype(int), level)
    difference = np.abs(apply(name, photo(), level) - expected)
    assert difference.max() <= (name == "AutoContrast")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", DEGENERATE)
def test_enhancements_blend_the_image_with_a_degenerate_image(name, level):
    factor, other = 1.8 * level + 0.1, DEGENERATE[name](photo())
    expected = np.clip(other + factor * (photo().astype(float) - other), 0, 255)
    # The degenerate image and the sum are both rounded to 8 bits.
    assert np.abs(apply(name, photo(), level) - expected).max() <= 1 + abs(1 - factor)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SOURCES)
def test_shears_and_translations_take_the_nearest_pixel(name, level):
    """Pixels from outside the image are grey."""
    pixels = photo()
    sources = SOURCES[name](*np.indices(pixels.shape[:2]) + 0.5, level)
    rows, columns = (np.floor(place).astype(int) for place in sources)
    inside = (rows < 20) & (columns < 30)
    expected = np.full(pixels.shape, 128)
    expected[inside] = pixels[rows[inside], columns[inside]]
    # A position half-way between two pixels may take either pixel.
    assert np.mean(np.any(apply(name, pixels, level) != expected, axis=-1)) < 0.02


def test_rotation_turns_by_thirty_degrees_per_level_and_cutout_greys_a_square():
    """Level 3 is a quarter turn; the border cuts the square, whose centre is the random place."""
    pixels = photo(20, 20)
    np.testing.assert_array_equal(apply("Rotate", pixels, 3.0), np.rot90(pixels))
    pixels = photo(56, 112)
    changed = apply("Cutout", pixels, 1.0, Always(100, 3))
    pixels[0 : 3 + 10, 100 - 20 : 112] = 128
    np.testing.assert_array_equal(changed, pixels)


def test_two_layers_apply_two_operations_in_turn():
    """Zero layers return the same image object."""
    image = Image.fromarray(photo())
    rng = Always(*map([*OPERATIONS].index, ("Invert", "Solarize")))
    changed = randaugment(image, 2, 10, rng)
    np.testing.assert_array_equal(np.asarray(changed), 255 - photo())
    assert randaugment(image, 0, 10, rng) is image
