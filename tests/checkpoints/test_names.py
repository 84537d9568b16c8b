"""Files whose arrays have the names of other code: Facebook's, torchvision's, open_clip's, Keras's.

The arrays are those of goldens of transformers and timm under these names.
"""

import re
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from tests.checkpoints.files import DATA, arrays_of, find, refused, write_arrays, write_open_clip
from tests.family_goldens import CASES, FOLDER, expected, outputs, relative_error
from tests.helpers import assert_close
from tests.plain import assert_same_arrays, edit_json, normal, stored

HEADS = {"num_heads": 3}
OF_TRANSFORMERS = (
    (r"^vit\.|^decoder\.", ""),
    (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.", ""),
    (r"^encoder\.layer\.", "blocks."),
    (r"attention\.output\.dense", "attn.proj"),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"(?<!attn\.)output\.dense", "mlp.fc2"),
    (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
    (r"weights_in", "w12"),
    (r"weights_out", "w3"),
    (r"^layernorm", "norm"),
)
"""Names of transformers -> names of Facebook's code, but for query, key and value."""


@pytest.fixture
def write(tmp_path):
    """Writes a file of arrays."""
    return lambda arrays: write_arrays(tmp_path / "x.safetensors", ("", arrays))


def facebook_arrays(name: str) -> dict[str, np.ndarray]:
    """The arrays of a golden of transformers by Facebook's names; query, key, value are one."""
    found = {}
    for name_there, array in arrays_of(name).items():
        for pattern, word in OF_TRANSFORMERS:
            name_there = re.sub(pattern, word, name_there)
        found[name_there] = array
    for query in [name for name in found if ".attention.attention.query." in name]:
        parts = [found.pop(query.replace(".query.", f".{q}.")) for q in ("query", "key", "value")]
        found[query.replace("attention.attention.query", "attn.qkv")] = np.concatenate(parts)
    return found


@pytest.mark.parametrize(
    "name", ["hf_dinov2_model", "hf_dinov2_reg_swiglu", "hf_mae_pretraining", "hf_msn_model"]
)
def test_a_file_of_facebook_gives_the_tokens_of_transformers(name, write):
    """MSN's encoder is DINO's, with the names of timm; DeiT's and MAE's have the same names."""
    want, block = expected(name), {"epsilon": CASES[name]["config"]["numerics"]["ln_eps"]}
    file = write(facebook_arrays(name))
    info = keras_vit.info(file, **HEADS)
    assert info.family == ("timm" if "msn" in name else "facebook")
    if "mae" in name:
        assert "pre-training" in info.ignored["mask_token"]
        assert "decoder" in info.ignored["decoder_norm.weight"]
    model = VisionTransformer.from_preset(file, block=block, **HEADS)
    got = outputs(model, want["image"], ["encoded"])["encoded"]
    assert relative_error(got, want["encoded"]) <= 1e-5


def test_the_scales_of_deit_iii_are_read(write):
    """RoPE-ViT of timm has the same arrays and rotary positions, so the file has to be named."""
    name = "timm_deit3_rect"
    want, arrays = expected(name), arrays_of(name)
    file = write({re.sub(r"ls(\d)\.gamma", r"gamma_\1", n): arrays[n] for n in arrays})
    fields = {"num_heads": keras_vit.info(find(name)).config.num_heads}
    fields["image_size"] = want["image"].shape[1:3]
    refused(file, "rope", "'family': 'facebook'", **fields)
    model = VisionTransformer.from_preset(file, read={"family": "facebook"}, **fields)
    assert relative_error(model.predict(want["image"], verbose=0), want["logits"]) <= 1e-5
    assert model.config.block.layer_scale


def test_a_head_of_torchvision_behind_a_representation_is_read(tmp_path):
    """The other arrays of a file of torchvision are those of the golden."""
    torch = pytest.importorskip("torch")
    from tests.live import channels_first, randomised

    models = pytest.importorskip("torchvision.models")
    sizes = {"image_size": 16, "patch_size": 4, "num_layers": 2, "hidden_dim": 24, **HEADS}
    sizes |= {"mlp_dim": 32, "num_classes": 5, "representation_size": 9}
    theirs, file = randomised(models.VisionTransformer(**sizes)), tmp_path / "x.pth"
    torch.save(theirs.state_dict(), file)
    model = VisionTransformer.from_preset(file, **HEADS, read={"allow_pickle_weights": True})
    image = normal(2, 16, 16, 3)
    assert_close(model(image), theirs(channels_first(image)).detach().numpy())


def test_torchvisions_names_of_the_mlp_before_release_0_13_are_read(write, tmp_path):
    """They hold the same weights."""
    name, numbers, weights = "px_torchvision.safetensors", {"0": "linear_1", "3": "linear_2"}, []
    arrays = arrays_of(name)
    old = {re.sub(r"(?<=mlp\.)[03]", lambda m: numbers[m[0]], n): arrays[n] for n in arrays}
    for file in (find(name), write(old)):
        keras_vit.convert(file, tmp_path / "y.safetensors", "keras_vit", **HEADS)
        weights.append(stored(tmp_path / "y.safetensors"))
    assert_same_arrays(*weights)


def test_a_file_of_open_clip_needs_its_gelu_or_its_config(write, tmp_path):
    """The GELU decides the output, so it is not guessed; the epsilon stays at open_clip's 1e-5."""
    path, block = find("px_open_clip_gelu.safetensors"), {"activation": "gelu_tanh"}
    assert keras_vit.info(path, **HEADS, block=block).config.block.epsilon == 1e-5
    write_open_clip(tmp_path, is_quick=True)
    info = keras_vit.info(tmp_path)
    assert (info.config.num_heads, info.config.block.activation) == (3, "quick_gelu")
    assert (info.config.projection_size, info.protocol["mean"]) == (10, [0.1, 0.2, 0.3])


def test_a_bias_beside_a_projection_is_refused(write):
    """open_clip adds it; keras_vit's projection has none."""
    arrays = arrays_of("px_open_clip_trunk_linear.safetensors")
    bias = {"visual.head.proj.bias": arrays["visual.head.proj.weight"][:, 0].copy()}
    block = {"activation": "gelu", "epsilon": 1e-6}
    given = {"pool": {"kind": "token"}, "rope": None, "block": block, **HEADS}
    refused(write(arrays | bias), "visual.head.proj.bias", **given)


def test_a_timm_wrapper_has_the_classes_of_its_arrays_and_the_parts_of_its_architecture(tmp_path):
    """config.json may state another number; null leaves an argument to the architecture.

    transformers calls `timm.create_model`, which leaves it out; timm's own loading does not.
    """
    folder = shutil.copytree(FOLDER / "px_wrapper_classifier", tmp_path / "x")
    info = keras_vit.info(folder)
    assert (info.family, info.prefix, info.config.num_classes) == ("timm", "timm_model.", 5)
    edit_json(folder / "config.json", "model_args", act_layer=None, pre_norm=False)
    for kind, activation in (("timm_wrapper", "quick_gelu"), (None, "gelu")):
        name = "vit_base_patch16_clip_quickgelu_224"
        edit_json(folder / "config.json", architecture=name, model_type=kind)
        assert keras_vit.info(folder).config.block.activation == activation


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [("hf_deit_model", 1e-12), ("hf_msn_classifier", 1e-6), ("hf_beit_model_shared", 1e-12)],
)
def test_a_file_of_transformers_alone_has_the_epsilon_of_its_class(name, epsilon, write):
    """MSN's classifier is told from ViT's by its blocks, which transformers 5 writes at the top."""
    assert keras_vit.info(write(arrays_of(name)), **HEADS).config.block.epsilon == epsilon


@pytest.mark.parametrize("file", (DATA / "formats").glob("*.npz"), ids=lambda path: path.stem)
def test_a_folder_of_tensorflow_gives_the_outputs_of_the_library(file):
    """Within 1e-5 of the largest value; the file named alone is the same model by its JSON."""
    with np.load(file) as arrays:
        (value,) = (array for name, array in arrays.items() if name != "image")
        image = arrays["image"]
    folder = file.with_suffix("")
    model = VisionTransformer.from_preset(folder)
    assert relative_error(model.predict(image, verbose=0), value) <= 1e-5
    alone, whole = keras_vit.info(folder / "tf_model.h5"), keras_vit.info(folder)
    assert (alone.family, alone.config) == (whole.family, whole.config)
