"""Files of wrappers with prefixed names, of torchvision, of open_clip, and of TimmWrapper."""

import json
import re

import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.translate import plan
from keras_vit.errors import CheckpointError
from tests.family_goldens import FOLDER
from tests.helpers import assert_same_arrays, random_tiny
from tests.words import raises

PLAIN = {"num_heads": 3}
WRAPPERS = ("module.", "model.", "backbone.", "timm_model.", "_orig_mod.", "a.b_c.")


def wrapped(arrays, prefix, path):
    """Writes a file with a prefix before every name; returns its path."""
    save_file({prefix + name: array for name, array in arrays.items()}, path)
    return path


@pytest.mark.parametrize("prefix", [*WRAPPERS, "module.model.", "_orig_mod.module.backbone."])
def test_prefixes_of_wrappers_are_removed(prefix, tmp_path):
    """A file with prefixed names is read like the file without prefixes."""
    for name in ("px_torchvision.safetensors", "hf_dinov2_model/model.safetensors"):
        arrays = load_file(FOLDER / name)
        bare = keras_vit.info(wrapped(arrays, "", tmp_path / "a.safetensors"), **PLAIN)
        info = keras_vit.info(wrapped(arrays, prefix, tmp_path / "b.safetensors"), **PLAIN)
        assert (info.family, info.config) == (bare.family, bare.config)
        assert info.prefix == prefix + bare.prefix
        assert set(info.shapes) == {prefix + name for name in arrays}


def test_torchvision_builds_a_head_behind_a_representation_as_planned():
    """The other arrays of a file of torchvision are those of the golden, bit for bit."""
    torch = pytest.importorskip("torch")
    from tests import torchvision_shim  # noqa: F401

    models = pytest.importorskip("torchvision.models")
    model = random_tiny(representation_size=9, patch_size=4, num_layers=2)
    sizes = {"image_size": 16, "patch_size": 4, "num_layers": 2, "num_heads": 2}
    sizes |= {"hidden_dim": 16, "mlp_dim": 32, "num_classes": 5, "representation_size": 9}
    with torch.device("meta"):
        theirs = models.VisionTransformer(**sizes).state_dict()
    moves = plan(model.config, DIALECTS["torchvision"])
    planned = {move.name: move.file_shape for move in moves}
    assert {name: tuple(array.shape) for name, array in theirs.items()} == planned


def test_torchvisions_names_of_the_mlp_before_release_0_13_are_read(tmp_path):
    """They hold the same weights."""
    source = FOLDER / "px_torchvision.safetensors"
    old = {
        re.sub(r"mlp\.([03])", lambda m: f"mlp.linear_{1 if m[1] == '0' else 2}", name): array
        for name, array in load_file(source).items()
    }
    path, weights = wrapped(old, "", tmp_path / "old.safetensors"), []
    for file in (source, path):
        keras_vit.convert(file, tmp_path / "x.safetensors", "keras_vit", **PLAIN)
        weights.append(load_file(tmp_path / "x.safetensors"))
    assert_same_arrays(*weights)


def test_a_file_that_does_not_determine_the_gelu_needs_the_activation():
    """The GELU decides the output, so it is not guessed."""
    path = FOLDER / "px_open_clip_gelu.safetensors"
    unknown = "the arrays do not tell block.activation. Give block={'activation': ...}"
    with raises(
        CheckpointError, unknown, "block.activation: 'quick_gelu' in the weights of OpenAI"
    ):
        VisionTransformer.from_preset(path, **PLAIN)
    model = VisionTransformer.from_preset(
        path, **PLAIN, block={"activation": "gelu_tanh"}, load_weights=False
    )
    assert model.config.block.activation == "gelu_tanh"


def test_a_trunk_without_its_architectures_name_needs_what_a_file_of_timm_needs():
    unknown = "the arrays do not tell pool.kind, rope, block.activation, block.epsilon."
    with raises(CheckpointError, unknown):
        keras_vit.info(FOLDER / "px_open_clip_trunk_siglip.safetensors", **PLAIN)


def test_a_dict_of_a_part_changes_only_the_fields_that_it_names():
    """The epsilon stays at open_clip's 1e-5, not at the default of 1e-6."""
    path = FOLDER / "px_open_clip_gelu.safetensors"
    for load_weights in (True, False):
        model = VisionTransformer.from_preset(
            path, **PLAIN, block={"activation": "quick_gelu"}, load_weights=load_weights
        )
        assert model.config.block.epsilon == 1e-5


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
    assert info.config.projection_size == 10
    assert info.protocol["mean"] == [0.1, 0.2, 0.3]


def test_the_arrays_of_a_timm_wrapper_determine_the_number_of_classes():
    """config.json of transformers' TimmWrapper may state another number."""
    info = keras_vit.info(FOLDER / "px_wrapper_classifier")
    assert (info.family, info.prefix, info.config.num_classes) == ("timm", "timm_model.", 5)
