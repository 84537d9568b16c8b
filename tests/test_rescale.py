"""Pixels inside: a model with `rescale=True` takes what a folder of images holds."""

import keras
import numpy as np
import pytest

from keras_vit import Preprocessor, VisionTransformer, evaluate, features
from keras_vit.data import from_arrays
from tests.helpers import POLICIES, ROUNDING, assert_close, numpy_of, random_tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
IMAGENET = {"name": "paper", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def pair(**fields):
    """A model of prepared images, and one of pixels with the same weights."""
    plain = random_tiny(protocol=IMAGENET, **fields)
    inside = VisionTransformer(plain.config, rescale=True, protocol=IMAGENET, **fields)
    inside.set_weights(plain.get_weights())
    return plain, inside


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("policy", POLICIES)
def test_pixels_give_what_prepared_images_give(policy, data_format):
    """By the protocol's mean and std, of whole and of real numbers, under any policy."""
    plain, inside = pair(dtype=policy, data_format=data_format)
    want = numpy_of(plain(plain.preprocessor(PIXELS)))
    batch = PIXELS if data_format == "channels_last" else np.moveaxis(PIXELS, -1, 1)
    # Pixels are whole numbers, which 16 bits hold; their range is rounded once, later.
    for pixels in (batch, batch.astype("float32")):
        assert_close(inside(pixels), want, 2 * ROUNDING[policy])
    assert inside.count_params() == plain.count_params()


def test_every_door_scales_once():
    """classify, evaluate, features and data sets, of pixels and of what the preprocessor makes."""
    plain, inside = pair()
    for found, expected in zip(inside.classify(PIXELS), plain.classify(PIXELS), strict=True):
        assert [name for name, _ in found] == [name for name, _ in expected]
        np.testing.assert_allclose([p for _, p in found], [p for _, p in expected], rtol=1e-5)
    labels = np.arange(4)
    prepared = plain.preprocessor(PIXELS)
    np.testing.assert_array_equal(inside.preprocessor(PIXELS), PIXELS)
    want = evaluate(plain, (prepared, labels)).loss
    for data in (
        (PIXELS, labels),
        (inside.preprocessor(PIXELS), labels),
        from_arrays(PIXELS, labels, inside),
    ):
        np.testing.assert_allclose(evaluate(inside, data).loss, want, rtol=1e-5)
    np.testing.assert_allclose(
        features(inside, PIXELS).values, features(plain, prepared).values, atol=1e-5
    )


def test_data_for_the_other_kind_are_refused():
    """A preprocessor without the model would scale twice, or not at all."""
    plain, inside = pair()
    for model, other in ((plain, inside), (inside, plain)):
        data = from_arrays(PIXELS, np.arange(4), other.preprocessor)
        with pytest.raises(ValueError, match=f"rescale={model.config.rescale}"):
            data.check(model)


def test_files_presets_and_clones_keep_it(tmp_path):
    """And a preset can be loaded with or without it."""
    _, inside = pair()
    want = numpy_of(inside(PIXELS))
    inside.save(tmp_path / "x.keras")
    inside.save_to_preset(tmp_path / "preset")
    clone = keras.models.clone_model(inside)
    clone.set_weights(inside.get_weights())
    loaded = VisionTransformer.from_preset(tmp_path / "preset")
    for again in (keras.saving.load_model(tmp_path / "x.keras"), clone, loaded):
        np.testing.assert_array_equal(numpy_of(again(PIXELS)), want)
    assert not Preprocessor.from_preset(tmp_path / "preset").scaled
    without = VisionTransformer.from_preset(tmp_path / "preset", rescale=False)
    assert_close(without(without.preprocessor(PIXELS)), want)


def test_a_digit_of_the_shipped_preset():
    """`from_preset(name, rescale=True)` answers as the preset does."""
    pixels = np.random.default_rng(1).integers(0, 256, (2, 16, 16, 1), dtype="uint8")
    plain = VisionTransformer.from_preset("vit_digits")
    inside = VisionTransformer.from_preset("vit_digits", rescale=True)
    assert_close(inside(pixels), numpy_of(plain(plain.preprocessor(pixels))))
