"""JSON beside a file that is named alone: read, refused if invalid, or left out with a line."""

import json
import shutil

import pytest

import keras_vit
from tests.checkpoints.files import copy, refused
from tests.words import edit_json

pytestmark = pytest.mark.without_backend


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


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("hidden_act", "mish", "hidden_act='mish'"),
        ("num_attention_heads", 5, "num_heads=5"),
        ("image_size", "large", "image_size"),
        ("problem_type", "odd", "multi_label_classification"),
    ],
)
def test_an_invalid_value_is_refused_as_in_the_folder(file, key, value, word):
    """Without it, the model would be computed otherwise than the library computes it."""
    edit_json(file.parent / "config.json", **{key: value})
    for source in (file, file.parent):
        refused(source, word)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"hidden_size": 48}, "hidden_size=48"),
        ({"num_hidden_layers": 3}, "arrays"),
        ({"model_type": "bert"}, "model_type='bert'"),
    ],
)
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
