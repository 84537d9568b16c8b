"""JSON beside a file: read, refused if invalid, or left out with a line; keys that are not read."""

import json
import shutil

import pytest

import keras_vit
from keras_vit.checkpoints.families.transformers.library import DEFAULTS
from tests.checkpoints.files import copy, refused
from tests.plain import edit_json


@pytest.fixture
def file(tmp_path):
    """The weights of a ViT of transformers with 3 heads, beside its config.json."""
    copy("hf_classifier/config.json", tmp_path)
    return copy("hf_classifier/model.safetensors", tmp_path)


def test_it_states_what_the_arrays_leave_open(file, caplog):
    """Under any name of the only weights of a folder; beside other weights, it may be theirs."""
    assert keras_vit.info(file).config.num_heads == 3
    own = file.rename(file.with_name("epoch_10.safetensors"))
    assert keras_vit.info(own).config.num_heads == 3
    assert not caplog.records
    shutil.copy(own, own.with_name("epoch_11.safetensors"))
    refused(own, "num_heads")


def test_it_is_read_without_the_word_of_a_family(file):
    edit_json(file.parent / "config.json", model_type=..., architectures=...)
    assert keras_vit.info(file).config.num_heads == 3


INVALID = (
    ("hidden_act", "mish", "hidden_act='mish'"),
    ("num_attention_heads", 5, "num_heads=5"),
    ("image_size", "large", "image_size"),
    ("problem_type", "odd", "multi_label_classification"),
)


@pytest.mark.parametrize(("key", "value", "word"), INVALID)
def test_an_invalid_value_is_refused_as_in_the_folder(file, key, value, word):
    """Without it, the model would be computed otherwise than the library computes it."""
    edit_json(file.parent / "config.json", **{key: value})
    for source in (file, file.parent):
        refused(source, word)


OF_OTHERS = (({"hidden_size": 48}, "hidden_size=48"), ({"model_type": "bert"}, "'bert'"))


@pytest.mark.parametrize(("changes", "word"), OF_OTHERS)
def test_that_of_another_model_is_left_out_with_one_line(file, changes, word, caplog):
    """Which stands above a refusal for what is then open."""
    edit_json(file.parent / "config.json", **changes)
    assert keras_vit.info(file, num_heads=4).config.num_heads == 4
    (record,) = caplog.records
    assert "JSON" in record.getMessage() and word in record.getMessage()
    assert "\n" not in record.getMessage()
    refused(file, "num_heads")
    assert len(caplog.records) == 2


def test_json_of_a_program_leaves_the_file_as_it_is(file):
    (file.parent / "config.json").write_text(json.dumps({"name": "app", "version": 1}))
    beside = keras_vit.info(file, num_heads=3)
    (file.parent / "config.json").unlink()
    assert beside == keras_vit.info(file, num_heads=3)


OF_TOOLS = {"finetuning_task": "image-classification", "transformers.js_config": {"dtype": "q8"}}
"""Keys of transformers 4's example scripts, and of transformers.js."""


PLACES = {"hf_dinov2_model": [], "hf_clip_two_towers": ["vision_config"]}
PLACES |= {"timm_token": ["model_args"]}


@pytest.mark.parametrize("name", PLACES)
def test_keys_of_the_network_that_are_not_read_are_named(name, tmp_path, caplog):
    """With their values; not the library's own keys, nor those of tools, nor one that is off."""
    file, place = copy(name, tmp_path) / "config.json", PLACES[name]
    edit_json(file, *place, windows=None, post_norm=False)
    edit_json(file, **OF_TOOLS)
    keras_vit.info(file.parent)
    assert not caplog.records
    edit_json(file, *place, windows=7, post_norm=True)
    keras_vit.info(file.parent)
    (record,) = caplog.records
    expected = "config.json states windows=7, post_norm=True, which keras_vit does not read."
    assert record.getMessage() == expected


def test_the_rotary_positions_of_transformers_5_are_read(tmp_path, caplog):
    """`rope_parameters` stands in the place of `rope_theta`."""
    file = copy("hf_dinov3_rect", tmp_path) / "config.json"
    edit_json(file, rope_theta=..., rope_parameters={"rope_theta": 50.0, "rope_type": "default"})
    assert keras_vit.info(file.parent).config.rope.theta == 50
    assert not caplog.records


def test_the_defaults_are_those_of_transformers():
    """The file is what its script makes of the transformers that is installed."""
    from tests.live import transformers
    from weights.make_defaults import read_defaults

    own = json.loads(DEFAULTS.read_text())
    if transformers.__version__ != own["transformers"]:
        pytest.skip(f"written with transformers {own['transformers']}")
    assert json.loads(json.dumps(read_defaults())) == own
