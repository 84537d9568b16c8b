"""TIPSv2 of transformers: features of two image sizes, both ways, images as its class has them."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from tests.family_goldens import relative_error
from tests.helpers import normal, only_under, to_numpy

only_under("torch")
from tests.live import channels_first, random_transformers, torch  # noqa: E402

SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "image_size": 16,
    "patch_size": 4,
    "mlp_ratio": 2.5,
}


@pytest.mark.parametrize("is_gated", [False, True])
def test_features_of_two_image_sizes_and_both_ways(is_gated, tmp_path):
    theirs = random_transformers("Tipsv2VisionModel", **SIZES, use_swiglu_ffn=is_gated)
    theirs.save_pretrained(tmp_path / "theirs")
    for size in (16, 24):
        image = normal(size, size, size, 3)
        with torch.no_grad():
            want = theirs(channels_first(image)).pooler_output.numpy()
        ours = VisionTransformer.from_preset(tmp_path / "theirs", image_size=size)
        assert relative_error(to_numpy(ours(image)), want) <= 1e-5
    checkpoints.save(
        VisionTransformer.from_preset(tmp_path / "theirs"), tmp_path / "ours", "transformers"
    )
    again, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    for key, value in theirs.state_dict().items():
        assert np.array_equal(again.state_dict()[key].numpy(), value.numpy()), key


def test_files_of_dinov2_with_the_same_names_stay_facebooks(tmp_path):
    """Facebook's own names of a gated DINOv2 with registers are those of TIPSv2."""
    theirs = random_transformers("Tipsv2VisionModel", **SIZES, use_swiglu_ffn=True)
    theirs.save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    weights = tmp_path / "model.safetensors"
    assert keras_vit.info(weights, num_heads=3).family == "facebook"
    named = keras_vit.info(
        weights, num_heads=3, read={"family": "transformers/tipsv2_vision_model"}, image_size=16
    )
    assert named.config.tokens.mask


def test_images_are_those_of_its_own_processor(tmp_path):
    """`Tipsv2ImageProcessor` resizes tensors by the bilinear filter, and has no mean and no std."""
    random_transformers("Tipsv2VisionModel", **SIZES).save_pretrained(tmp_path)
    own = {"name": "transformers", "resize": "tensor", "mean": 0.0, "std": 1.0}
    assert keras_vit.info(tmp_path).protocol == own
    beside = {"image_processor_type": "Tipsv2ImageProcessor", "size": {"height": 16, "width": 16}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(beside))
    info = keras_vit.info(tmp_path)
    assert (info.protocol, info.config.image_size) == (own, (16, 16))
