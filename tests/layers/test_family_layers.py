"""Small layers of other families: RMSNorm, the mask token, and the distilled head."""

import keras
import numpy as np
import pytest

from keras_vit.layers import (
    DistilledHead,
    MaskToken,
    PatchEmbedding,
    RMSNorm,
)
from tests import formulas
from tests.helpers import assert_close, randomise, read_weights, run
from tests.plain import normal

pytestmark = pytest.mark.every_backend


def built(layer, *shapes):
    """The layer with random weights."""
    layer.build(*shapes)
    return randomise(layer)


def test_rms_norm_of_large_numbers_is_exact_in_16_bits():
    """The square of 300 overflows float16, so the norm squares in float32."""
    x = (300 + normal(2, 6, 8)).astype("float16")
    layer = built(RMSNorm(name="norm", dtype="float32"), x.shape)
    gamma = {"norm/gamma": read_weights(layer)["gamma"]}
    assert_close(layer(x), formulas.rms_norm(x.astype("float64"), gamma, "norm"), 1e-5)


def test_the_mask_token_is_a_weight_that_nothing_reads():
    """The input passes unchanged; the token is not trainable."""
    x = normal(2, 3, 8)
    layer = built(MaskToken(name="mask"), x.shape)
    np.testing.assert_array_equal(run(layer, x), x)
    assert read_weights(layer)["token"].shape == (1, 1, 8)
    assert layer.trainable_weights == []


def test_a_distilled_head_averages_the_logits_of_two_heads():
    """`both` returns the logits of each head, which training with a teacher needs."""
    x = normal(3, 2, 8)
    layer = built(DistilledHead(5, name="head"), x.shape)
    w = read_weights(layer)
    of_class = x[:, 0] @ w["class/kernel"] + w["class/bias"]
    of_distillation = x[:, 1] @ w["distillation/kernel"] + w["distillation/bias"]
    assert_close(run(layer, x), (of_class + of_distillation) / 2)
    inputs = keras.Input((2, 8))
    student = keras.Model(inputs, layer.both(inputs))
    for actual, expected in zip(
        student.predict(x, verbose=0), (of_class, of_distillation), strict=True
    ):
        assert_close(actual, expected)


@pytest.mark.parametrize("size", [(None, 12), (8, None)])
def test_images_of_one_unknown_side_have_an_unknown_number_of_patches(size):
    """A graph of such images takes images of any length."""
    images = keras.Input((*size, 3))
    assert PatchEmbedding(5, 4, data_format="channels_last")(images).shape == (None, None, 5)
