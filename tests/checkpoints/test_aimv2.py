"""AIMv2 of transformers: RMSNorm and gated MLPs; attention pooling without product of the query."""

import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError
from tests.helpers import assert_close, normal, only_under
from tests.words import edit_json, raises

only_under("torch")
from tests.live import channels_first, random_transformers, torch, transformers  # noqa: E402

SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "image_size": 16,
    "patch_size": 4,
    "intermediate_size": 40,
}
IMAGE = normal(2, 16, 16, 3)


def run(theirs):
    with torch.no_grad():
        return theirs(channels_first(IMAGE))


@pytest.mark.parametrize("fields", [{"hidden_act": "gelu"}, {"qkv_bias": True, "mlp_bias": True}])
def test_the_pooled_output_is_that_of_the_library(fields, tmp_path):
    theirs = random_transformers("Aimv2VisionModel", **SIZES, **fields)
    theirs.save_pretrained(tmp_path / "theirs")
    model, want = VisionTransformer.from_preset(tmp_path / "theirs"), run(theirs)
    assert_close(model.predict(IMAGE, verbose=0), want.pooler_output.numpy(), 1e-5)
    patches = model.tokens(IMAGE, prepared=True).patches.reshape(2, 16, 24)
    assert_close(patches, want.last_hidden_state.numpy(), 1e-5)
    with raises(CheckpointError, "attention pooling with a product of the query"):
        checkpoints.save(model, tmp_path / "ours", "transformers/aimv2_vision_model")


def test_a_tower_without_pooling_is_read_and_written(tmp_path):
    theirs = random_transformers("Aimv2VisionModel", **SIZES, use_head=False)
    theirs.save_pretrained(tmp_path / "theirs")
    assert keras_vit.verify(tmp_path / "theirs").passed
    model = VisionTransformer.from_preset(tmp_path / "theirs")
    checkpoints.save(model, tmp_path / "ours", "transformers/aimv2_vision_model")
    again, info = transformers.Aimv2VisionModel.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values()), info
    assert torch.equal(run(again).last_hidden_state, run(theirs).last_hidden_state)


def test_sine_positions_of_each_size_are_refused_by_their_key(tmp_path):
    random_transformers("Aimv2VisionModel", **SIZES).save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", is_native=True)
    with raises(CheckpointError, "is_native=True, expected False"):
        keras_vit.info(tmp_path)
