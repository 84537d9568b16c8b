"""A model with `rescale=True` takes raw pixels and scales them itself."""

import numpy as np
import pytest

from keras_vit import Preprocessor, VisionTransformer, evaluate
from keras_vit.data import from_arrays
from keras_vit.evaluation import features
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import POLICIES, ROUNDING

pytestmark = pytest.mark.every_backend

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
IMAGENET = {"name": "paper", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def pair(**fields):
    """A model for prepared images, and a model with `rescale=True` and the same weights."""
    plain = random_tiny(protocol=IMAGENET, **fields)
    inside = VisionTransformer(plain.config, rescale=True, protocol=IMAGENET, **fields)
    inside.set_weights(plain.get_weights())
    return plain, inside


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("policy", POLICIES)
def test_pixels_give_the_logits_of_prepared_images(policy, data_format):
    """With the protocol's mean and std, for uint8 and float32 pixels, under every policy."""
    plain, inside = pair(dtype=policy, data_format=data_format)
    want = to_numpy(plain(plain.preprocessor(PIXELS)))
    batch = PIXELS if data_format == "channels_last" else np.moveaxis(PIXELS, -1, 1)
    # 16 bits hold the whole numbers of pixels exactly; only the scaled values are rounded.
    for pixels in (batch, batch.astype("float32")):
        assert_close(inside(pixels), want, 2 * ROUNDING[policy])
    assert inside.count_params() == plain.count_params()


def test_classify_evaluate_features_and_data_scale_once():
    """The preprocessor of a model that rescales leaves pixels unscaled."""
    plain, inside = pair()
    for actual, expected in zip(inside.classify(PIXELS), plain.classify(PIXELS), strict=True):
        assert [name for name, _ in actual] == [name for name, _ in expected]
        np.testing.assert_allclose([p for _, p in actual], [p for _, p in expected], rtol=1e-5)
    labels = np.arange(4)
    prepared = plain.preprocessor(PIXELS)
    np.testing.assert_array_equal(inside.preprocessor(PIXELS), PIXELS)
    want = evaluate(plain, (prepared, labels), prepared=True).loss
    for data in (
        (PIXELS, labels),
        (inside.preprocessor(PIXELS), labels),
        from_arrays(PIXELS, labels, inside),
    ):
        np.testing.assert_allclose(evaluate(inside, data).loss, want, rtol=1e-5)
    np.testing.assert_allclose(
        features(inside, PIXELS).values, features(plain, prepared, prepared=True).values, atol=1e-5
    )


def test_data_prepared_for_the_other_value_of_rescale_are_refused():
    """The pixels would be scaled twice, or not at all."""
    plain, inside = pair()
    for model, other in ((plain, inside), (inside, plain)):
        data = from_arrays(PIXELS, np.arange(4), other.preprocessor)
        with pytest.raises(ValueError, match=f"takes scaled={not model.rescale}"):
            data.check(model)


def test_a_preset_knows_that_its_model_rescales(tmp_path):
    """`from_preset` can switch it off."""
    _, inside = pair()
    inside.save_to_preset(tmp_path / "preset")
    assert not Preprocessor.from_preset(tmp_path / "preset").scaled
    without = VisionTransformer.from_preset(tmp_path / "preset", rescale=False)
    assert_close(without(without.preprocessor(PIXELS)), to_numpy(inside(PIXELS)))
