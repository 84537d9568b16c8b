"""Names of other tools: prefixes of wrappers, torchvision's state dicts, open_clip's two towers."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit import CheckpointError, VisionTransformer, checkpoints
from keras_vit.checkpoints.recognition import WRAPPERS, wrapper_of
from tests.family_goldens import FOLDER, relative_error
from tests.helpers import normal, numpy_of, randomise

PLAIN = {"num_heads": 3}


def wrapped(arrays, prefix, path):
    """A file with a prefix in front of every name."""
    save_file({prefix + name: array for name, array in arrays.items()}, path)
    return path


@pytest.mark.parametrize("prefix", [*WRAPPERS, "module.model.", "_orig_mod.module.backbone."])
def test_a_stack_of_wrappers_is_taken_off(prefix, tmp_path):
    """A file with prefixes is the file without them, in every dialect of torch's names."""
    for name in ("px_torchvision.safetensors", "hf_dinov2_model/model.safetensors"):
        arrays = load_file(FOLDER / name)
        bare = checkpoints.inspect(wrapped(arrays, "", tmp_path / "a.safetensors"), **PLAIN)
        info = checkpoints.inspect(wrapped(arrays, prefix, tmp_path / "b.safetensors"), **PLAIN)
        assert (info.dialect, info.config) == (bare.dialect, bare.config)
        assert info.prefix == prefix + bare.prefix
        assert set(info.shapes) == {prefix + name for name in arrays}


def test_a_prefix_of_some_names_stays(tmp_path):
    """What stands in front of some names alone belongs to them."""
    assert wrapper_of(["model.a", "model.b", "head.weight"]) == ""
    assert wrapper_of(["module.model.a", "module.head.weight"]) == "module."
    arrays = load_file(FOLDER / "px_torchvision.safetensors")
    path = wrapped(arrays, "model.", tmp_path / "x.safetensors")
    save_file({**load_file(path), "other.weight": np.zeros(3, "float32")}, path)
    with pytest.raises(CheckpointError, match="no Vision Transformer in any"):
        checkpoints.inspect(path, **PLAIN)


def test_torchvision_opens_what_is_written(tmp_path):
    """A model of keras_vit, its state dict in torchvision's class, and the same logits."""
    torch = pytest.importorskip("torch")
    from tests import torchvision_shim  # noqa: F401

    models = pytest.importorskip("torchvision.models")
    sizes = {"patch_size": 4, "hidden_size": 24, "mlp_dim": 40, "num_heads": 3, "num_layers": 2}
    model = VisionTransformer(
        **sizes, image_size=16, num_classes=5, representation_size=9, numerics={"gelu": "exact"}
    )
    randomise(model)
    checkpoints.save(model, tmp_path / "x.safetensors", "torchvision")
    theirs = models.VisionTransformer(
        image_size=16,
        patch_size=4,
        num_layers=2,
        num_heads=3,
        hidden_dim=24,
        mlp_dim=40,
        num_classes=5,
        representation_size=9,
    ).eval()
    state = {k: torch.from_numpy(v) for k, v in load_file(tmp_path / "x.safetensors").items()}
    theirs.load_state_dict(state)
    image = normal(2, 16, 16, 3)
    with torch.no_grad():
        want = theirs(torch.from_numpy(image.transpose(0, 3, 1, 2).copy())).numpy()
    assert relative_error(numpy_of(model(image)), want) <= 1e-5


def test_torchvision_files_come_back(tmp_path):
    """Names and bits; and the names of the MLP before release 0.13 are read."""
    source = FOLDER / "px_torchvision.safetensors"
    checkpoints.convert(source, tmp_path / "x.safetensors", "torchvision", **PLAIN)
    theirs, ours = load_file(source), load_file(tmp_path / "x.safetensors")
    assert theirs.keys() == ours.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array)
    old = {
        re.sub(r"mlp\.([03])", lambda m: f"mlp.linear_{1 if m[1] == '0' else 2}", name): array
        for name, array in theirs.items()
    }
    path = wrapped(old, "", tmp_path / "old.safetensors")
    checkpoints.convert(path, tmp_path / "new.safetensors", "torchvision", **PLAIN)
    assert load_file(tmp_path / "new.safetensors").keys() == theirs.keys()


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("px_open_clip_gelu", "gelu: 'quick' in the weights of OpenAI"),
        ("px_open_clip_trunk_siglip", "gelu: 'quick' where the architecture's name has quickgelu"),
    ],
)
def test_arithmetic_that_no_array_tells_is_asked_for(name, facts):
    """The form of GELU decides the output, so none is guessed; an answer is taken."""
    path = FOLDER / f"{name}.safetensors"
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load(path, **PLAIN)
    assert "the arrays do not tell gelu. Give numerics={'gelu': ...}" in str(caught.value)
    assert facts in str(caught.value)
    model = checkpoints.load(path, **PLAIN, numerics={"gelu": "tanh"}, load_weights=False)
    assert model.config.numerics.gelu == "tanh"


def test_a_dict_of_numerics_changes_what_it_names():
    """The rest stays as the file's library computes: 1e-5 in open_clip, 1e-6 by default."""
    path = FOLDER / "px_open_clip_gelu.safetensors"
    for load_weights in (True, False):
        model = checkpoints.load(
            path, **PLAIN, numerics={"gelu": "quick"}, load_weights=load_weights
        )
        assert model.config.numerics.layer_norm_epsilon == 1e-5


def test_open_clip_config_tells_heads_and_gelu(tmp_path):
    """A folder as open_clip publishes it needs no further facts."""
    arrays = load_file(FOLDER / "px_open_clip_quickgelu.safetensors")
    save_file(arrays, tmp_path / "open_clip_model.safetensors")
    vision = {"image_size": 16, "layers": 2, "width": 24, "head_width": 8, "patch_size": 4}
    content = {
        "model_cfg": {"embed_dim": 10, "quick_gelu": True, "vision_cfg": vision},
        "preprocess_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]},
    }
    (tmp_path / "open_clip_config.json").write_text(json.dumps(content))
    info = checkpoints.inspect(tmp_path)
    assert (info.config.num_heads, info.config.numerics.gelu) == (3, "quick")
    assert info.config.projection_dim == 10
    assert info.protocol["mean"] == [0.1, 0.2, 0.3]


def test_two_towers_are_not_written(tmp_path):
    """open_clip opens no vision tower alone."""
    with pytest.raises(CheckpointError, match="a vision tower alone, where this library has a t"):
        checkpoints.convert(
            FOLDER / "px_open_clip_gelu.safetensors",
            tmp_path / "x.safetensors",
            "open_clip",
            **PLAIN,
            numerics={"gelu": "exact"},
        )


def test_the_class_of_a_timm_wrapper_needs_no_head():
    """transformers' TimmWrapper states 2 classes where there is no head: the arrays decide."""
    info = checkpoints.inspect(FOLDER / "px_wrapper_classifier")
    assert (info.dialect, info.prefix, info.config.num_classes) == ("timm", "timm_model.", 5)
