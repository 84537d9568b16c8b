"""Encoders of single fields, as folders of timm: what `model_args` leaves out the arrays decide."""

import json

import numpy as np
import pytest
from safetensors.torch import save_file

from keras_vit import checkpoints
from keras_vit.errors import CheckpointError
from tests.golden import relative_error
from tests.live import timm, torch

MEAN = [0.707223, 0.578729, 0.703617]
_GATED = {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU}
_SIZES = {"embed_dim": 32, "depth": 2, "num_heads": 4, "img_size": 64}
ENCODERS = {
    "UNI": ("vit_large_patch16_224", {"init_values": 1e-5}, {}),
    "UNI2-h": (
        "vit_giant_patch14_224",
        {"mlp_ratio": 2.66667 * 2, "init_values": 1e-5, "no_embed_class": True, "reg_tokens": 8},
        _GATED,
    ),
    "Virchow2": (
        "vit_huge_patch14_224",
        {"mlp_ratio": 5.375, "init_values": 1e-5, "reg_tokens": 4},
        _GATED,
    ),
    "H0-mini": ("vit_base_patch14_reg4_dinov2", {"mlp_ratio": 5.375}, _GATED),
    "prov-gigapath": ("vit_giant_patch14_dinov2", {"patch_size": 16, "mlp_ratio": 5.375}, {}),
}
"""timm's architecture, the arguments of the model card, and those that JSON cannot state."""


def written(name, folder):
    """A random model of the encoder's kind, as timm; its JSON states the sizes alone."""
    architecture, arguments, classes = ENCODERS[name]
    sizes = {**_SIZES, "img_size": 64 if "16" in architecture + str(arguments) else 56}
    torch.manual_seed(0)
    theirs = timm.create_model(architecture, num_classes=0, **sizes, **arguments, **classes).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.normal_(std=0.1)
    folder.mkdir()
    arrays = {key: value.contiguous() for key, value in theirs.state_dict().items()}
    save_file(arrays, folder / "model.safetensors")
    stated = {"patch_size": 16} if "patch_size" in arguments else {}
    content = {
        "architecture": architecture,
        "num_classes": 0,
        "num_features": sizes["embed_dim"],
        "global_pool": "token",
        "model_args": {**sizes, **stated},
        "pretrained_cfg": {"input_size": [3, 64, 64], "mean": MEAN, "std": [0.2, 0.2, 0.2]},
    }
    (folder / "config.json").write_text(json.dumps(content))
    return theirs, sizes["img_size"]


@pytest.mark.parametrize("name", ENCODERS)
def test_folder_and_file_give_the_features_of_timm(name, tmp_path):
    """The file is named inside the folder, and read with the JSON beside it."""
    theirs, side = written(name, tmp_path / "encoder")
    images = np.random.default_rng(0).uniform(-1, 1, (2, side, side, 3)).astype("float32")
    with torch.no_grad():
        want = theirs(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    for source in (tmp_path / "encoder", tmp_path / "encoder" / "model.safetensors"):
        model = checkpoints.load(source)
        assert relative_error(model.predict(images, verbose=0), want) <= 1e-5
        assert model.preprocessor.protocol["mean"] == MEAN


def test_the_activation_of_a_gated_mlp_that_is_assumed_is_logged(tmp_path, caplog):
    """JSON cannot state the class; a word for it beats the assumption, and `numerics` both."""
    written("H0-mini", tmp_path / "encoder")
    with caplog.at_level("INFO", "keras_vit"):
        assert checkpoints.load(tmp_path / "encoder").config.numerics.gate == "silu"
    assert "activation is taken to be SiLU" in caplog.text
    gelu = checkpoints.load(tmp_path / "encoder", numerics={"gate": "gelu"})
    assert gelu.config.numerics.gate == "gelu"
    caplog.clear()
    path = tmp_path / "encoder" / "config.json"
    content = json.loads(path.read_text())
    content["model_args"]["act_layer"] = "silu"
    path.write_text(json.dumps(content))
    with caplog.at_level("INFO", "keras_vit"):
        checkpoints.load(tmp_path / "encoder")
    assert "SiLU" not in caplog.text


def test_a_name_of_another_width_is_refused(tmp_path):
    """The number of heads belongs to the architecture's width, so that arrays cannot replace it."""
    written("UNI", tmp_path / "encoder")
    path = tmp_path / "encoder" / "config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "num_features": 1024}))
    with pytest.raises(CheckpointError, match="num_features=1024.* arrays are 32 wide"):
        checkpoints.load(tmp_path / "encoder")
