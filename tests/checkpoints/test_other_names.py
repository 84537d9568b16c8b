"""Files of torchvision, of open_clip, and of TimmWrapper."""

import json
import re

import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.errors import CheckpointError
from tests.family_goldens import FOLDER
from tests.helpers import assert_close, assert_same_arrays, normal
from tests.words import raises

PLAIN = {"num_heads": 3}


@pytest.mark.on_one_backend("torch")
def test_a_head_of_torchvision_behind_a_representation_is_read(tmp_path):
    """The other arrays of a file of torchvision are those of the golden."""
    torch = pytest.importorskip("torch")
    from tests.live import channels_first, randomised

    models = pytest.importorskip("torchvision.models")
    sizes = {"image_size": 16, "patch_size": 4, "num_layers": 2, "num_heads": 3}
    sizes |= {"hidden_dim": 24, "mlp_dim": 32, "num_classes": 5, "representation_size": 9}
    theirs = randomised(models.VisionTransformer(**sizes))
    torch.save(theirs.state_dict(), tmp_path / "x.pth")
    model = VisionTransformer.from_preset(
        tmp_path / "x.pth", **PLAIN, read={"allow_pickle_weights": True}
    )
    image = normal(2, 16, 16, 3)
    assert_close(model(image), theirs(channels_first(image)).detach().numpy())


def test_torchvisions_names_of_the_mlp_before_release_0_13_are_read(tmp_path):
    """They hold the same weights."""
    source, weights = FOLDER / "px_torchvision.safetensors", []
    numbers = {"0": "linear_1", "3": "linear_2"}
    arrays = load_file(source)
    old = {re.sub(r"(?<=mlp\.)[03]", lambda m: numbers[m[0]], n): arrays[n] for n in arrays}
    save_file(old, tmp_path / "old.safetensors")
    for file in (source, tmp_path / "old.safetensors"):
        keras_vit.convert(file, tmp_path / "x.safetensors", "keras_vit", **PLAIN)
        weights.append(load_file(tmp_path / "x.safetensors"))
    assert_same_arrays(*weights)


def test_a_file_that_does_not_determine_the_gelu_needs_the_activation():
    """The GELU decides the output, so it is not guessed; the epsilon stays at open_clip's 1e-5."""
    path = FOLDER / "px_open_clip_gelu.safetensors"
    with raises(CheckpointError, "block.activation", "'quick_gelu'", "OpenAI"):
        VisionTransformer.from_preset(path, **PLAIN)
    for load_weights in (True, False):
        model = VisionTransformer.from_preset(
            path, **PLAIN, block={"activation": "gelu_tanh"}, load_weights=load_weights
        )
        assert (model.config.block.activation, model.config.block.epsilon) == ("gelu_tanh", 1e-5)


def test_open_clips_config_determines_heads_and_gelu(tmp_path):
    """A published folder of open_clip needs no further arguments."""
    arrays = load_file(FOLDER / "px_open_clip_quickgelu.safetensors")
    save_file(arrays, tmp_path / "open_clip_model.safetensors")
    vision = {"image_size": 16, "layers": 2, "width": 24, "head_width": 8, "patch_size": 4}
    content = {
        "model_cfg": {"embed_dim": 10, "quick_gelu": True, "vision_cfg": vision},
        "preprocess_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]},
    }
    (tmp_path / "open_clip_config.json").write_text(json.dumps(content))
    info = keras_vit.info(tmp_path)
    assert (info.config.num_heads, info.config.block.activation) == (3, "quick_gelu")
    assert (info.config.projection_size, info.protocol["mean"]) == (10, [0.1, 0.2, 0.3])


def test_the_arrays_of_a_timm_wrapper_determine_the_number_of_classes():
    """config.json of transformers' TimmWrapper may state another number."""
    info = keras_vit.info(FOLDER / "px_wrapper_classifier")
    assert (info.family, info.prefix, info.config.num_classes) == ("timm", "timm_model.", 5)
