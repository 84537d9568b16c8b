"""A model with `rescale=True` takes raw pixels and scales them itself."""

import numpy as np
import pytest
from scipy.special import softmax

from keras_vit import Preprocessor, VisionTransformer, evaluate
from keras_vit.data import from_arrays
from keras_vit.evaluation import features
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import POLICIES, ROUNDING
from tests.runs import sample

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
IMAGENET = {"name": "paper", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def pair(setting=None, **fields):
    """A model for prepared images, and one with another setting and the same weights."""
    plain = random_tiny(protocol=IMAGENET, **fields)
    setting = setting or {"rescale": True}
    other = VisionTransformer(plain.config, protocol=IMAGENET, **fields, **setting)
    other.set_weights(plain.get_weights())
    return plain, other


CASES = [(policy, form) for policy in POLICIES for form in ("channels_last", "channels_first")]
FEW = [("float32", "channels_first"), ("mixed_float16", "channels_last")]


@pytest.mark.every_backend
@pytest.mark.parametrize(("policy", "data_format"), sample(CASES, *FEW))
def test_pixels_give_the_logits_of_prepared_images(policy, data_format):
    """With the protocol's mean and std, for uint8 and float32 pixels, under every policy."""
    plain, inside = pair(dtype=policy, data_format=data_format)
    want = to_numpy(plain(plain.preprocessor(PIXELS)))
    batch = PIXELS if data_format == "channels_last" else np.moveaxis(PIXELS, -1, 1)
    # 16 bits hold the whole numbers of pixels exactly; only the scaled values are rounded.
    for pixels in (batch, batch.astype("float32")):
        assert_close(inside(pixels), want, 2 * ROUNDING[policy])
    assert inside.count_params() == plain.count_params()


@pytest.mark.parametrize("setting", [{"rescale": True}, {"classifier_activation": "softmax"}])
def test_classify_evaluate_features_and_data_answer_alike(setting):
    """The preprocessor of a model that rescales leaves pixels unscaled."""
    plain, other = pair(setting)
    prepared, labels = plain.preprocessor(PIXELS), np.arange(4)
    own = other.preprocessor(PIXELS)
    np.testing.assert_array_equal(own, PIXELS if "rescale" in setting else prepared)
    logits = to_numpy(plain(prepared))
    assert_close(other(own), logits if "rescale" in setting else softmax(logits, axis=1))
    for actual, expected in zip(other.classify(PIXELS), plain.classify(PIXELS), strict=True):
        assert [name for name, _ in actual] == [name for name, _ in expected]
        np.testing.assert_allclose([p for _, p in actual], [p for _, p in expected], rtol=1e-5)
    want = evaluate(plain, (prepared, labels), prepared=True).loss
    losses = [evaluate(other, (own, labels), prepared=True).loss]
    losses += [
        evaluate(other, each).loss
        for each in ((PIXELS, labels), from_arrays(PIXELS, labels, other))
    ]
    np.testing.assert_allclose(losses, want, rtol=1e-5)
    expected = features(plain, prepared, prepared=True).values
    np.testing.assert_allclose(features(other, PIXELS).values, expected, atol=1e-5)


def test_a_preset_knows_that_its_model_rescales(tmp_path):
    """`from_preset` can switch it off."""
    _, inside = pair()
    inside.save_to_preset(tmp_path / "preset")
    assert not Preprocessor.from_preset(tmp_path / "preset").scaled
    without = VisionTransformer.from_preset(tmp_path / "preset", rescale=False)
    assert_close(without(without.preprocessor(PIXELS)), to_numpy(inside(PIXELS)))
