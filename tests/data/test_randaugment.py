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


def photo(mode="RGB", size=(20, 30)):
    """Noise between 30 and 220, a range that every operation changes."""
    shape = size if mode == "L" else (*size, 3)
    return np.random.default_rng(0).integers(30, 220, shape, "uint8")


def apply(name, pixels, level, rng=None):
    return np.asarray(OPERATIONS[name](Image.fromarray(pixels), level, rng or Always())).astype(int)


def blend(other, pixels, factor):
    return np.clip(other + factor * (pixels.astype(float) - other), 0, 255)


def grey(pixels):
    return (pixels @ [0.299, 0.587, 0.114])[..., None]


@pytest.mark.parametrize("level", LEVELS)
def test_invert_posterize_and_solarize_map_each_value_by_their_formula(level):
    """Also solarize-add."""
    pixels = photo().astype(int)
    bits = np.clip(int(4 * level), 1, 8)
    expected = {
        "Invert": 255 - pixels,
        "Posterize": pixels >> (8 - bits) << (8 - bits),
        "Solarize": np.where(pixels < int(256 * level), pixels, 255 - pixels),
        "SolarizeAdd": np.where(pixels < 128, np.clip(pixels + int(110 * level), 0, 255), pixels),
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(apply(name, photo(), level), values, err_msg=name)


@pytest.mark.parametrize("level", LEVELS)
def test_enhancements_blend_the_image_with_a_degenerate_image(level):
    """Colour, contrast, brightness and sharpness, each with its own degenerate image."""
    pixels, factor = photo(), 1.8 * level + 0.1
    smooth = pixels.astype(float)
    for k in range(3):
        around = sum(
            pixels[1 + dy : 19 + dy, 1 + dx : 29 + dx, k].astype(float)
            for dy in (-1, 0, 1)
            for dx in (-1, 0, 1)
        )
        smooth[1:-1, 1:-1, k] = (around + 4.0 * pixels[1:-1, 1:-1, k]) / 13
    degenerate = {
        "Color": grey(pixels),
        "Contrast": grey(pixels).mean(),
        "Brightness": 0.0,
        "Sharpness": smooth,
    }
    for name, other in degenerate.items():
        changed = apply(name, pixels, level)
        # The degenerate image and the sum are both rounded to 8 bits.
        tolerance = 1 + abs(1 - factor)
        assert np.abs(changed - blend(other, pixels, factor)).max() <= tolerance, name


def test_autocontrast_stretches_and_equalize_flattens_the_histogram():
    """Both work on each channel separately."""
    pixels = photo()
    low, high = pixels.min((0, 1)).astype(float), pixels.max((0, 1)).astype(float)
    stretched = (pixels - low) * 255 / (high - low)
    assert np.abs(apply("AutoContrast", pixels, 1.0) - stretched).max() <= 1
    for k in range(3):
        counts = np.bincount(pixels[..., k].ravel(), minlength=256)
        step = (600 - counts[counts > 0][-1]) // 255
        before = np.cumsum(counts) - counts
        expected = np.clip((before + step // 2) // step, 0, 255)[pixels[..., k]]
        np.testing.assert_array_equal(apply("Equalize", pixels, 1.0)[..., k], expected)


@pytest.mark.parametrize("level", LEVELS)
def test_shears_and_translations_take_the_nearest_pixel(level):
    """Pixels from outside the image are grey."""
    pixels = photo()
    y, x = np.indices(pixels.shape[:2]) + 0.5
    sources = {
        "ShearX": (y, x + 0.3 * level * y),
        "ShearY": (y + 0.3 * level * x, x),
        "TranslateX": (y, x + 100 * level * 30 / 224),
        "TranslateY": (y + 100 * level * 20 / 224, x),
    }
    for name, (rows, columns) in sources.items():
        rows, columns = np.floor(rows).astype(int), np.floor(columns).astype(int)
        inside = (rows < 20) & (columns < 30)
        expected = np.full(pixels.shape, 128)
        expected[inside] = pixels[rows[inside], columns[inside]]
        # A position half-way between two pixels may take either pixel.
        assert np.mean(np.any(apply(name, pixels, level) != expected, axis=-1)) < 0.02, name


def test_rotation_turns_by_thirty_degrees_per_level():
    """Level 3 is a quarter turn."""
    pixels = photo(size=(20, 20))
    changed = apply("Rotate", pixels, 3.0)
    np.testing.assert_array_equal(changed, np.rot90(pixels))


def test_cutout_greys_a_square_that_the_border_cuts():
    """The square is centred on the random place."""
    pixels = photo(size=(56, 112))
    changed = apply("Cutout", pixels, 1.0, Always(100, 3))
    expected = pixels.copy()
    expected[0 : 3 + 10, 100 - 20 : 112] = 128
    np.testing.assert_array_equal(changed, expected)


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_keeps_mode_and_size(name, mode):
    """For grey and RGB images, at every level of AugReg."""
    for level in LEVELS:
        image = Image.fromarray(photo(mode))
        changed = OPERATIONS[name](image, level, np.random.default_rng(0))
        assert (changed.mode, changed.size) == (mode, image.size)


def test_two_layers_apply_two_operations_in_turn():
    """Zero layers return the same image object."""
    image = Image.fromarray(photo())
    names = list(OPERATIONS)
    rng = Always(names.index("Invert"), names.index("Solarize"))
    changed = randaugment(image, 2, 10, rng)
    np.testing.assert_array_equal(np.asarray(changed), 255 - photo())
    assert randaugment(image, 0, 10, rng) is image
