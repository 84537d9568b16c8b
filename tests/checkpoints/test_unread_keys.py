"""Keys of a config.json that may change the network and are not read are named in one line."""

import json
import shutil

import pytest

import keras_vit
from keras_vit.checkpoints.families.transformers.library import DEFAULTS
from tests.family_goldens import FOLDER as FAMILIES
from tests.golden import FOLDER
from tests.helpers import only_under
from tests.words import edit_json

OF_TOOLS = {"finetuning_task": "image-classification", "transformers.js_config": {"dtype": "q8"}}
"""Keys of transformers 4's example scripts, and of transformers.js."""


@pytest.mark.without_backend
@pytest.mark.parametrize(
    ("folder", "place"),
    [
        (FAMILIES / "hf_dinov2_model", []),
        (FAMILIES / "hf_clip_two_towers", ["vision_config"]),
        (FOLDER / "timm_token", ["model_args"]),
    ],
    ids=["transformers", "two towers", "timm"],
)
def test_keys_of_the_network_that_are_not_read_are_named(folder, place, tmp_path, caplog):
    """With their values; not the library's own keys, nor those of tools, nor one that is off."""
    shutil.copytree(folder, tmp_path / "x")
    edit_json(tmp_path / "x" / "config.json", *place, windows=None, post_norm=False)
    edit_json(tmp_path / "x" / "config.json", **OF_TOOLS)
    keras_vit.info(tmp_path / "x")
    assert not caplog.records
    edit_json(tmp_path / "x" / "config.json", *place, windows=7, post_norm=True)
    keras_vit.info(tmp_path / "x")
    (record,) = caplog.records
    expected = "config.json states windows=7, post_norm=True, which keras_vit does not read."
    assert record.getMessage() == expected


@pytest.mark.without_backend
def test_the_rotary_positions_of_transformers_5_are_read(tmp_path, caplog):
    """`rope_parameters` stands in the place of `rope_theta`."""
    shutil.copytree(FAMILIES / "hf_dinov3_rect", tmp_path / "x")
    file = tmp_path / "x" / "config.json"
    edit_json(file, rope_theta=..., rope_parameters={"rope_theta": 50.0, "rope_type": "default"})
    assert keras_vit.info(tmp_path / "x").config.rope.theta == 50
    assert not caplog.records


def test_the_defaults_are_those_of_transformers():
    """The file is what its script makes of the transformers that is installed."""
    only_under("torch")
    from tests.live import transformers
    from weights.make_defaults import read_defaults

    own = json.loads(DEFAULTS.read_text())
    if transformers.__version__ != own["transformers"]:
        pytest.skip(f"written with transformers {own['transformers']}")
    assert json.loads(json.dumps(read_defaults())) == own
