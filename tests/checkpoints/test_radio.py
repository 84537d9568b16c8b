"""RADIO of transformers: joined class tokens, positions of the longer side, mean and std."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError
from tests.helpers import assert_close, only_under
from tests.words import edit_json, raises

only_under("torch")
from tests.live import channels_first, random_transformers, torch, transformers  # noqa: E402

SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "image_size": 16,
    "patch_size": 4,
    "max_img_size": 32,
    "mlp_ratio": 2.0,
    "num_registers": 2,
    "norm_mean": [0.5, 0.4, 0.3],
    "norm_std": [0.2, 0.3, 0.4],
}


@pytest.mark.parametrize(
    ("size", "fields"),
    [
        ((16, 16), {}),
        ((16, 28), {"use_swiglu_ffn": True, "num_registers": 0}),
        ((32, 32), {"num_cls_tokens": 4, "summary_idxs": [0, 1, 2]}),
        ((24, 16), {"num_cls_tokens": 1, "summary_idxs": [0]}),
    ],
)
def test_summary_and_features_are_those_of_the_library(size, fields, tmp_path):
    """For square and other images; the library gets pixels in [0, 1]."""
    theirs = random_transformers("RadioModel", **{**SIZES, **fields})
    theirs.save_pretrained(tmp_path)
    pixels = np.random.default_rng(0).uniform(0, 1, (2, *size, 3)).astype("float32")
    with torch.no_grad():
        want = theirs(channels_first(pixels))
    model = VisionTransformer.from_preset(tmp_path, image_size=size)
    mean, std = (np.asarray(SIZES[key], "float32") for key in ("norm_mean", "norm_std"))
    images = (pixels - mean) / std
    assert_close(model.predict(images, verbose=0), want.summary.numpy(), 1e-5)
    patches = model.tokens(images, prepared=True).patches
    assert_close(patches.reshape(want.features.shape), want.features.numpy(), 1e-5)
    protocol = keras_vit.info(tmp_path).protocol
    assert (protocol["mean"], protocol["std"]) == (SIZES["norm_mean"], SIZES["norm_std"])


def test_a_model_is_loaded_at_the_size_of_its_json_and_both_ways(tmp_path):
    """The table of positions is that of the largest image."""
    theirs = random_transformers("RadioModel", **SIZES)
    theirs.save_pretrained(tmp_path / "theirs")
    pixels = np.random.default_rng(0).uniform(0, 1, (2, 16, 16, 3)).astype("float32")
    assert VisionTransformer.from_preset(tmp_path / "theirs").config.image_size == (16, 16)
    assert keras_vit.verify(tmp_path / "theirs").passed
    keras_vit.convert(tmp_path / "theirs", tmp_path / "converted", "transformers/radio")
    checkpoints.save(
        VisionTransformer.from_preset(tmp_path / "theirs"), tmp_path / "saved", "transformers"
    )
    with torch.no_grad():
        want = theirs(channels_first(pixels)).summary
        for name in ("converted", "saved"):
            again, info = transformers.RadioModel.from_pretrained(
                tmp_path / name, output_loading_info=True
            )
            assert not any(info.values()) and again.config.max_img_size == 32
            assert_close(again(channels_first(pixels)).summary.numpy(), want.numpy(), 1e-5)


def test_mean_and_std_follow_those_of_the_processor(tmp_path):
    """A processor that normalises comes before the model's own mean and std."""
    random_transformers("RadioModel", **SIZES).save_pretrained(tmp_path)
    beside = {"image_processor_type": "CLIPImageProcessor", "do_normalize": False}
    beside |= {"size": {"height": 24, "width": 24}, "do_center_crop": False}
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(beside))
    info = keras_vit.info(tmp_path)
    assert (info.protocol["mean"], info.config.image_size) == (SIZES["norm_mean"], (24, 24))
    path.write_text(json.dumps({**beside, "do_normalize": True, "image_mean": [0.5] * 3}))
    assert keras_vit.info(tmp_path).protocol["mean"][0] == round(0.5 + 0.26862954 * 0.5, 9)


def test_other_class_tokens_than_the_first_are_refused(tmp_path):
    random_transformers("RadioModel", **SIZES).save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", summary_idxs=[0, 2])
    with raises(CheckpointError, "summary_idxs=[0, 2]", "expected the first of 3 class tokens"):
        keras_vit.info(tmp_path)
