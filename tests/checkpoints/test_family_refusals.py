"""Contradictory or incomplete files of the families are refused by one precise message."""

import json
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit import CheckpointError, checkpoints
from tests.family_goldens import FOLDER
from tests.helpers import tiny


def changed(name, folder, arrays=lambda arrays: arrays, at=(), **config):
    """A copy of a case with other arrays, or other values in config.json."""
    folder = shutil.copytree(FOLDER / name, folder / "x")
    content = json.loads((folder / "config.json").read_text())
    place = content
    for key in at:
        place = place[key]
    place |= config
    (folder / "config.json").write_text(json.dumps(content))
    path = folder / "model.safetensors"
    if path.exists():
        save_file(arrays(load_file(path)), path)
    return folder


def refused(source, **fields) -> str:
    """The message of the refusal."""
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load(source, **fields)
    return str(caught.value)


def test_a_config_with_another_number_of_registers_is_refused(tmp_path):
    """config.json states 5 registers, the array has 4."""
    message = refused(changed("hf_dinov2_reg_model", tmp_path, num_register_tokens=5))
    assert "misshapen: embeddings.register_tokens is (1, 4, 24), expected (1, 5, 24)" in message
    assert "num_registers" in message


def test_rotary_positions_with_heads_of_six_channels_are_refused(tmp_path):
    """Pairs of channels for rows and for columns need a multiple of 4."""
    message = refused(changed("hf_dinov3_model", tmp_path, num_attention_heads=4))
    assert "rope needs heads of a multiple of 4 channels; hidden_size / num_heads is" in message


def test_a_dinov2_classifier_of_another_width_is_refused(tmp_path):
    """DINOv2's classifier reads the class token and the mean, so it is twice as wide."""

    def narrow(arrays):
        return {**arrays, "classifier.weight": np.ones((5, 24), "float32")}

    message = refused(changed("hf_dinov2_classifier", tmp_path, narrow))
    assert "misshapen: classifier.weight is (5, 24), expected (5, 48)" in message


def test_a_number_of_heads_that_keras_hubs_arrays_contradict_is_refused(tmp_path):
    """keras-hub's arrays have an axis of heads."""
    folder = changed("kh_dinov2", tmp_path, at=("config",), num_heads=4)
    assert "query_dense/vars/0 is (16, 2, 8), expected (16, 4, 4)" in refused(folder)


def test_a_clip_file_without_its_vision_tower_is_refused_as_a_text_model(tmp_path):
    """The message says that a vision tower is expected."""

    def text(arrays):
        return {name: array for name, array in arrays.items() if name.startswith("text_")}

    message = refused(changed("hf_clip_two_towers", tmp_path, text))
    assert "no Vision Transformer in any of the dialects transformers/clip" in message
    assert "It looks like a text model; beside a text tower, a vision tower is expected" in message
    assert "config.json has model_type='clip'" in message


def test_a_folder_of_an_unknown_family_is_refused_by_its_model_type(tmp_path):
    """The message names model type and class from config.json."""
    folder = changed(
        "hf_dinov3_model",
        tmp_path,
        model_type="dinov4_vit",
        architectures=["DINOv4ViTModel"],
    )
    message = refused(folder)
    assert "config.json has model_type='dinov4_vit', expected 'vit' or" in message
    assert "the model is a DINOv4ViTModel" in message


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hf_dinov3_model/model.safetensors", "theta of the rotary positions stands in config"),
        ("kh_dinov2_reg/model.weights.h5", "which numbered array is which token stands in config"),
        ("kh_clip_vision/model.weights.h5", "the form of the GELU stands in config.json"),
        ("hf_clip_vision/model.safetensors", "the arrays do not tell gelu. Give numerics="),
    ],
)
def test_a_file_without_json_is_refused_by_the_missing_fact(name, reason):
    """The message names the fact that decides the output and that no array shows."""
    assert reason in refused(FOLDER / name, num_heads=3)


def test_a_keras_file_is_refused_by_the_class_of_its_model(tmp_path):
    """A .keras file is a zip, as an npz file is."""
    tiny().save(tmp_path / "vit.keras")
    keras.Sequential([keras.layers.Dense(2)]).save(tmp_path / "sequential.keras")
    for name, kind in (("vit", "keras_vit>VisionTransformer"), ("sequential", "Sequential")):
        message = refused(tmp_path / f"{name}.keras")
        assert f"this is a .keras file, a whole model of the class {kind}" in message
