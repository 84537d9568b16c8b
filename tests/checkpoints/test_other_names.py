"""Files of torchvision, of open_clip, of TimmWrapper, and of transformers' TensorFlow classes."""

import json
import re
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from tests.checkpoints.files import DATA, arrays_of, find, refused, write_arrays
from tests.family_goldens import FOLDER, relative_error
from tests.helpers import assert_close
from tests.plain import assert_same_arrays, normal, stored

PLAIN = {"num_heads": 3}


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
    name, numbers, weights = "px_torchvision.safetensors", {"0": "linear_1", "3": "linear_2"}, []
    arrays = arrays_of(name)
    names = {re.sub(r"(?<=mlp\.)[03]", lambda m: numbers[m[0]], n): arrays[n] for n in arrays}
    for file in (FOLDER / name, write_arrays(tmp_path / "old.safetensors", ("", names))):
        keras_vit.convert(file, tmp_path / "x.safetensors", "keras_vit", **PLAIN)
        weights.append(stored(tmp_path / "x.safetensors"))
    assert_same_arrays(*weights)


def test_a_file_that_does_not_determine_the_gelu_needs_the_activation():
    """The GELU decides the output, so it is not guessed; the epsilon stays at open_clip's 1e-5."""
    path = FOLDER / "px_open_clip_gelu.safetensors"
    refused(
        path,
        "block.activation",
        "'quick_gelu'",
        "OpenAI",
        **PLAIN,
        ask=VisionTransformer.from_preset,
    )
    block = keras_vit.info(path, **PLAIN, block={"activation": "gelu_tanh"}).config.block
    assert (block.activation, block.epsilon) == ("gelu_tanh", 1e-5)


def write_open_clip(folder, without="no such array", is_quick=False, **changed):
    """A folder as open_clip publishes it, with other words of the tower."""
    arrays = arrays_of("px_open_clip_quickgelu.safetensors")
    kept = {name: array for name, array in arrays.items() if without not in name}
    write_arrays(folder / "open_clip_model.safetensors", ("", kept))
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


@pytest.mark.parametrize(
    ("without", "changed", "words"),
    [
        ("no array", {"pool_type": "avg"}, "pool_type='avg'"),
        ("no array", {"final_ln_after_pool": True}, "final_ln_after_pool=True"),
        ("no array", {"no_ln_pre": True}, "no_ln_pre=True"),
        ("no array", {"act_kwargs": {"approximate": "tanh"}}, "act_kwargs={'approximate'"),
        ("no array", {"norm_kwargs": {"eps": 1e-6}}, "norm_kwargs={'eps': 1e-06}"),
        ("no array", {"layers": 3}, "num_layers=3"),
        ("no array", {"width": 48}, "hidden_size=48"),
        ("ln_pre", {}, "block.input_norm"),
    ],
)
def test_an_open_clip_folder_that_does_not_fit_its_config_is_refused(
    without, changed, words, tmp_path
):
    write_open_clip(tmp_path, without, **changed)
    refused(tmp_path, words)


def test_a_bias_beside_a_projection_is_refused(tmp_path):
    """open_clip adds it; keras_vit's projection has none."""
    arrays = arrays_of("px_open_clip_trunk_linear.safetensors")
    bias = {"visual.head.proj.bias": arrays["visual.head.proj.weight"][:, 0].copy()}
    file = write_arrays(tmp_path / "x.safetensors", ("", arrays), ("", bias))
    block = {"activation": "gelu", "epsilon": 1e-6}
    given = {"pool": {"kind": "token"}, "rope": None, "block": block, **PLAIN}
    refused(file, "visual.head.proj.bias", **given)


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
    arrays = arrays_of(name)
    two = write_arrays(tmp_path / "x.safetensors", ("net.", arrays), ("other.", arrays))
    given = {"block": {"activation": "gelu"}, **PLAIN}
    info = keras_vit.info(two, read={"prefix": prefix}, **given)
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


TENSORFLOW = sorted(path.stem for path in (DATA / "formats").glob("*.npz"))


@pytest.mark.parametrize("name", TENSORFLOW)
def test_a_folder_of_tensorflow_gives_the_outputs_of_the_library(name):
    """Within 1e-5 of the largest value; the file named alone is the same model by its JSON."""
    with np.load(find(f"{name}.npz")) as file:
        want = dict(file)
    image = want.pop("image")
    model = keras_vit.VisionTransformer.from_preset(find(name))
    ((_, value),) = want.items()
    assert relative_error(model.predict(image, verbose=0), value) <= 1e-5
    alone, whole = keras_vit.info(find(f"{name}/tf_model.h5")), keras_vit.info(find(name))
    assert (alone.family, alone.config) == (whole.family, whole.config)
