"""Class token, mean of the patches and both, of any stage, as other libraries' features."""

import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.evaluation import features
from tests.helpers import assert_close, random_tiny
from tests.plain import normal

IMAGES = normal(3, 28, 28, 3).clip(-1, 1)


def pool(model, stage=None, images=IMAGES, **options):
    return features(model, images, stage, prepared=True, **options).values


def test_every_pooling_is_that_of_the_tokens_of_transformers(tmp_path):
    """Of the last_hidden_state of DINOv2 with registers, and of a block before the last norm; the
    mean is that of the patches alone."""
    live = pytest.importorskip("tests.live")
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
    options = {"image_size": 28, "patch_size": 14, "num_register_tokens": 4}
    theirs = live.random_transformers("Dinov2WithRegistersModel", **options, **sizes)
    theirs.save_pretrained(tmp_path / "dinov2")
    with live.torch.no_grad():
        states = theirs(live.channels_first(IMAGES), output_hidden_states=True)
    ours = VisionTransformer.from_preset(tmp_path / "dinov2", image_size=28)
    last, early = states.last_hidden_state.numpy(), states.hidden_states[2].numpy()
    for stage, tokens in ((None, last), ("encoder_norm", last), ("block_1", early)):
        token, mean = tokens[:, 0], tokens[:, 5:].mean(axis=1)
        wanted = {"token": token, "gap": mean, "token_and_mean": np.hstack([token, mean])}
        for pooling, expected in wanted.items():
            assert_close(pool(ours, stage, pooling=pooling), expected)


def test_packed_patches_are_pooled_without_their_padding():
    """As the model's own mean, which leaves padding out; the mean of all tokens is another."""
    sizes = {"image_size": 16, "patch_size": 4, "position_grid": (3, 3)}
    parts = {"stem": {"kind": "packed"}, "tokens": {"class_tokens": 0, "registers": 2}}
    model = random_tiny(pool={"kind": "gap"}, **parts, **sizes)
    images = model.preprocessor(np.clip(normal(30, 90, 3) * 60 + 128, 0, 255).astype("uint8"))
    expected, tokens = (pool(model, stage, images=images) for stage in ("pool", "encoder_norm"))
    assert_close(pool(model, images=images, pooling="gap"), expected)
    assert np.abs(tokens[:, 2:].mean(axis=1) - expected).max() > 1e-3


def test_features_are_kept_as_float16(tmp_path):
    """In memory and in a cache of its own."""
    model, images = random_tiny(), normal(4, 16, 16, 3).clip(-1, 1)
    exact = pool(model, images=images, cache=tmp_path)
    for cache in (None, tmp_path):
        half = pool(model, images=images, output_dtype="float16", cache=cache)
        assert half.dtype == np.float16
        np.testing.assert_array_equal(half, exact.astype("float16"))
    assert len(list(tmp_path.iterdir())) == 2
