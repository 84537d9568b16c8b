"""ViTPose's backbone of transformers: padded patches, an expert of each data set, both ways."""

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError
from tests.helpers import assert_close, normal, only_under
from tests.words import raises

only_under("torch")
from tests.live import channels_first, random_transformers, torch, transformers  # noqa: E402

SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "image_size": [32, 24],
    "patch_size": [8, 8],
    "mlp_ratio": 2,
}
MIXTURE = {**SIZES, "num_experts": 3, "part_features": 8}
IMAGE = normal(2, 32, 24, 3)


def features(theirs, number: int = 0) -> np.ndarray:
    with torch.no_grad():
        chosen = torch.tensor([number] * len(IMAGE))
        return theirs(channels_first(IMAGE), dataset_index=chosen).feature_maps[-1].numpy()


def test_features_are_those_of_the_library_both_ways(tmp_path):
    """Of images of 256x192 pixels, four times smaller; the class token's position is added."""
    theirs = random_transformers("VitPoseBackbone", **SIZES)
    theirs.save_pretrained(tmp_path / "theirs")
    model, want = VisionTransformer.from_preset(tmp_path / "theirs"), features(theirs)
    found = model.tokens(IMAGE, prepared=True).patches
    assert_close(found.reshape(want.shape), want, 1e-5)
    family = "transformers/vitpose_backbone"
    checkpoints.save(model, tmp_path / "ours", family)
    again, info = transformers.VitPoseBackbone.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values()), info
    assert_close(features(again), want, 1e-6)
    keras_vit.convert(tmp_path / "ours", tmp_path / "converted", family)
    assert (tmp_path / "ours" / "model.safetensors").read_bytes() == (
        tmp_path / "converted" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("number", [0, 2])
def test_the_expert_of_a_data_set_makes_a_plain_mlp(number, tmp_path):
    theirs = random_transformers("VitPoseBackbone", **MIXTURE)
    theirs.save_pretrained(tmp_path / "theirs")
    keras_vit.convert(
        *(tmp_path / "theirs", tmp_path / "plain", "transformers/vitpose_backbone"),
        dataset_index=number,
    )
    plain = transformers.VitPoseBackbone.from_pretrained(tmp_path / "plain")
    assert_close(features(plain), features(theirs, number), 1e-6)
    model = VisionTransformer.from_preset(tmp_path / "theirs", dataset_index=number or None)
    found, want = model.tokens(IMAGE, prepared=True).patches, features(theirs, number)
    assert_close(found.reshape(want.shape), want, 1e-5)


def test_a_number_without_an_expert_is_refused(tmp_path):
    random_transformers("VitPoseBackbone", **MIXTURE).save_pretrained(tmp_path / "three")
    random_transformers("VitPoseBackbone", **SIZES).save_pretrained(tmp_path / "none")
    with raises(CheckpointError, "dataset_index=3", "experts of data sets 0 to 2"):
        keras_vit.info(tmp_path / "three", dataset_index=3)
    with raises(CheckpointError, "dataset_index=0", "its MLPs are no mixtures"):
        keras_vit.info(tmp_path / "none", dataset_index=0)


def test_the_backbone_of_a_pose_model_is_read_below_its_prefix(tmp_path):
    whole = random_transformers(
        "VitPoseForPoseEstimation",
        backbone_config={**SIZES, "model_type": "vitpose_backbone"},
        num_labels=4,
    )
    whole.save_pretrained(tmp_path)
    found = VisionTransformer.from_preset(tmp_path).tokens(IMAGE, prepared=True).patches
    want = features(whole.backbone)
    assert_close(found.reshape(want.shape), want, 1e-5)


def test_patches_that_begin_outside_of_the_image_keep_their_size(tmp_path):
    random_transformers("VitPoseBackbone", **SIZES).save_pretrained(tmp_path)
    with raises(CheckpointError, "patch_size=16", "those with a patch_shift"):
        VisionTransformer.from_preset(tmp_path, patch_size=16)
