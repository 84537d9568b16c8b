"""Files of torchvision, of open_clip, and of TimmWrapper."""

import json
import re
import shutil

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


def write_open_clip(folder, without="no such array", is_quick=False, **changed):
    """A folder as open_clip publishes it, with other words of the tower."""
    arrays = load_file(FOLDER / "px_open_clip_quickgelu.safetensors")
    kept = {name: array for name, array in arrays.items() if without not in name}
    save_file(kept, folder / "open_clip_model.safetensors")
    vision = {"image_size": 16, "layers": 2, "width": 24, "head_width": 8, "patch_size": 4}
    content = {
        "model_cfg": {"embed_dim": 10, "quick_gelu": is_quick, "vision_cfg": vision | changed},
        "preprocess_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]},
    }
    (folder / "open_clip_config.json").write_text(json.dumps(content))


def test_open_clips_config_determines_heads_and_gelu(tmp_path):
    """A published folder of open_clip needs no further arguments."""
    write_open_clip(tmp_path, is_quick=True)
    info = keras_vit.info(tmp_path)
    assert (info.config.num_heads, info.config.block.activation) == (3, "quick_gelu")
    assert (info.config.projection_size, info.protocol["mean"]) == (10, [0.1, 0.2, 0.3])


def test_open_clips_config_determines_pooling_norms_and_arguments_of_layers(tmp_path):
    """CLIPA (arXiv 2305.07017) has no first norm, and its last one after the mean of patches."""
    layers = {"act_kwargs": {"approximate": "tanh"}, "norm_kwargs": {"eps": 1e-6}}
    pool = {"pool_type": "avg", "final_ln_after_pool": True, "no_ln_pre": True}
    write_open_clip(tmp_path, without="ln_pre", **layers, **pool)
    config = keras_vit.info(tmp_path).config
    assert (config.pool.kind, config.pool.norm, config.block.input_norm) == ("gap", "after", None)
    assert (config.block.activation, config.block.epsilon) == ("gelu_tanh", 1e-6)
    write_open_clip(tmp_path, pool_type="avg")
    config = keras_vit.info(tmp_path).config
    assert (config.pool.kind, config.pool.norm) == ("gap", "before")


@pytest.mark.parametrize(
    ("without", "changed", "words"),
    [
        ("no array", {"pool_type": "none"}, "pool_type='none'"),
        ("no array", {"act_kwargs": {"inplace": True}}, "act_kwargs={'inplace': True}"),
        ("no array", {"norm_kwargs": {"bias": False}}, "norm_kwargs={'bias': False}"),
        ("no array", {"layers": 3}, "num_layers=3"),
        ("no array", {"width": 48}, "hidden_size=48"),
        ("ln_pre", {}, "block.input_norm"),
    ],
)
def test_an_open_clip_folder_that_does_not_fit_its_config_is_refused(
    without, changed, words, tmp_path
):
    write_open_clip(tmp_path, without, **changed)
    with raises(CheckpointError, words):
        keras_vit.info(tmp_path)


def test_a_bias_beside_a_projection_is_refused(tmp_path):
    """open_clip adds it; keras_vit's projection has none."""
    arrays = load_file(FOLDER / "px_open_clip_trunk_linear.safetensors")
    arrays["visual.head.proj.bias"] = arrays["visual.head.proj.weight"][:, 0].copy()
    save_file(arrays, tmp_path / "x.safetensors")
    given = {"pool": {"kind": "token"}, "rope": None, "block": {"activation": "gelu"}}
    given["block"]["epsilon"] = 1e-6
    with raises(CheckpointError, "visual.head.proj.bias"):
        keras_vit.info(tmp_path / "x.safetensors", num_heads=3, **given)


def test_the_arrays_of_a_timm_wrapper_determine_the_number_of_classes():
    """config.json of transformers' TimmWrapper may state another number."""
    info = keras_vit.info(FOLDER / "px_wrapper_classifier")
    assert (info.family, info.prefix, info.config.num_classes) == ("timm", "timm_model.", 5)


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [("hf_deit_model", 1e-12), ("hf_msn_classifier", 1e-6), ("hf_beit_model_shared", 1e-12)],
)
def test_a_file_of_transformers_alone_has_the_epsilon_of_its_class(name, epsilon, tmp_path):
    """MSN's classifier is told from ViT's by its blocks, which transformers 5 writes at the top."""
    shutil.copy(FOLDER / name / "model.safetensors", tmp_path / "x.safetensors")
    info = keras_vit.info(tmp_path / "x.safetensors", num_heads=3)
    assert info.config.block.epsilon == epsilon


@pytest.mark.parametrize(
    ("name", "prefix", "found"),
    [
        ("hf_deit_teacher/model.safetensors", "net", "net.deit."),
        ("hf_clip_two_towers/model.safetensors", "net.", "net.vision_model."),
        ("px_open_clip_gelu.safetensors", "net.", "net.visual."),
    ],
)
def test_a_librarys_own_prefix_may_follow_that_of_the_caller(name, prefix, found, tmp_path):
    """Of two models of a file, the caller chooses one by the name that the training gave it."""
    arrays = load_file(FOLDER / name)
    two = {f"{part}.{name}": array for part in ("net", "other") for name, array in arrays.items()}
    save_file(two, tmp_path / "x.safetensors")
    given = {"num_heads": 3, "block": {"activation": "gelu"}}
    info = keras_vit.info(tmp_path / "x.safetensors", read={"prefix": prefix}, **given)
    assert info.prefix == found


def test_null_in_a_timm_wrapper_leaves_an_argument_to_the_architecture(tmp_path):
    """transformers calls `timm.create_model`, which leaves it out; timm's own loading does not."""
    shutil.copytree(FOLDER / "px_wrapper_classifier", tmp_path / "x")
    path, name = tmp_path / "x/config.json", "vit_base_patch16_clip_quickgelu_224"
    content = json.loads(path.read_text()) | {"architecture": name}
    content["model_args"] |= {"act_layer": None, "pre_norm": False}
    for kind, activation in (("timm_wrapper", "quick_gelu"), (None, "gelu")):
        path.write_text(json.dumps({**content, "model_type": kind}))
        assert keras_vit.info(tmp_path / "x").config.block.activation == activation
