"""JSON beside a file that is named alone: read, refused if invalid, or left out with a line."""

import json
import shutil
from pathlib import Path

import pytest

import keras_vit
from keras_vit.errors import CheckpointError
from tests.golden import FOLDER
from tests.words import edit_json

pytestmark = pytest.mark.without_backend


@pytest.fixture
def file(tmp_path):
    """The weights of a ViT of transformers with 3 heads, beside its config.json."""
    shutil.copy(FOLDER / "hf_classifier" / "config.json", tmp_path)
    return Path(shutil.copy(FOLDER / "hf_classifier" / "model.safetensors", tmp_path))


def test_it_states_what_the_arrays_leave_open(file, caplog):
    assert keras_vit.info(file).config.num_heads == 3
    assert not caplog.records


def test_that_of_the_only_weights_of_a_folder_counts_under_any_name(file):
    """Beside other weights, it may be theirs."""
    own = file.rename(file.with_name("epoch_10.safetensors"))
    assert keras_vit.info(own).config.num_heads == 3
    shutil.copy(own, own.with_name("epoch_11.safetensors"))
    with pytest.raises(CheckpointError, match="num_heads cannot be inferred"):
        keras_vit.info(own)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "mish"}, "hidden_act='mish'"),
        ({"layer_norm_eps": "small"}, "found 'small'"),
        ({"num_attention_heads": 0}, "num_heads must be a positive int"),
        ({"num_attention_heads": 5}, "not divisible by num_heads=5"),
        ({"image_size": "large"}, "image_size must be"),
        ({"problem_type": "odd"}, "problem_type='odd'"),
    ],
)
def test_an_invalid_value_is_refused_as_in_the_folder(file, changes, message):
    """Without it, the model would be computed otherwise than the library computes it."""
    edit_json(file.parent / "config.json", **changes)
    for source in (file, file.parent):
        with pytest.raises(CheckpointError, match=message):
            keras_vit.info(source)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": NaN,}', "\xff"])
def test_a_damaged_file_is_refused_by_its_name(file, text):
    (file.parent / "config.json").write_text(text, "latin-1")
    with pytest.raises(CheckpointError, match=r"config\.json: (not a readable|expected a) JSON"):
        keras_vit.info(file, num_heads=3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_size": 48}, "37 arrays do not fit"),
        ({"num_hidden_layers": 3}, "do not fit"),
        ({"model_type": "bert"}, "model_type='bert'"),
    ],
)
def test_that_of_another_model_is_left_out_with_one_line(file, changes, reason, caplog):
    edit_json(file.parent / "config.json", **changes)
    assert keras_vit.info(file, num_heads=4).config.num_heads == 4
    (record,) = caplog.records
    line = record.getMessage()
    assert "is not of this model, and is not read" in line and reason in line
    assert "\n" not in line


def test_the_line_stands_above_a_refusal_for_what_is_then_open(file, caplog):
    edit_json(file.parent / "config.json", hidden_size=48)
    with pytest.raises(CheckpointError, match="num_heads cannot be inferred"):
        keras_vit.info(file)
    assert "is not of this model" in caplog.text


def test_json_of_a_program_leaves_the_file_as_it_is(file):
    (file.parent / "config.json").write_text(json.dumps({"name": "app", "version": 1}))
    beside = keras_vit.info(file, num_heads=3)
    (file.parent / "config.json").unlink()
    assert beside == keras_vit.info(file, num_heads=3)
