"""Files of the families that contradict themselves, or hold less than a model: one message each."""

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


def test_registers_of_another_number(tmp_path):
    """config.json says 5, the array has 4."""
    message = refused(changed("hf_dinov2_reg_model", tmp_path, num_register_tokens=5))
    assert "misshapen: embeddings.register_tokens is (1, 4, 24), expected (1, 5, 24)" in message
    assert "num_registers" in message


def test_a_rope_of_another_width(tmp_path):
    """Heads of 6 channels have no rows and columns of pairs."""
    message = refused(changed("hf_dinov3_model", tmp_path, num_attention_heads=4))
    assert "rope needs heads of a multiple of 4 channels; hidden_size / num_heads is" in message


def test_a_classifier_of_another_width(tmp_path):
    """DINOv2's classifier reads the class token and the mean."""

    def narrow(arrays):
        return {**arrays, "classifier.weight": np.ones((5, 24), "float32")}

    message = refused(changed("hf_dinov2_classifier", tmp_path, narrow))
    assert "misshapen: classifier.weight is (5, 24), expected (5, 48)" in message


def test_heads_that_the_arrays_contradict(tmp_path):
    """keras-hub's arrays have an axis of heads."""
    folder = changed("kh_dinov2", tmp_path, at=("config",), num_heads=4)
    assert "query_dense/vars/0 is (16, 2, 8), expected (16, 4, 4)" in refused(folder)


def test_two_towers_without_a_vision_tower(tmp_path):
    """The text tower alone is called so, and where the other is expected."""

    def text(arrays):
        return {name: array for name, array in arrays.items() if name.startswith("text_")}

    message = refused(changed("hf_clip_two_towers", tmp_path, text))
    assert "no Vision Transformer in any of the dialects transformers/clip" in message
    assert "It looks like a text model; beside a text tower, a vision tower is expected" in message
    assert "config.json has model_type='clip'" in message


def test_a_model_of_another_name(tmp_path):
    """A folder of a family that nobody reads: model and class of config.json are named."""
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
def test_weights_alone_are_not_guessed_at(name, reason):
    """Without JSON, what decides the output and stands in no array is named."""
    assert reason in refused(FOLDER / name, num_heads=3)


def test_a_keras_file_is_called_so(tmp_path):
    """A whole model of Keras is a zip, as an npz is; ours and others' are named by class."""
    tiny().save(tmp_path / "ours.keras")
    keras.Sequential([keras.layers.Dense(2)]).save(tmp_path / "theirs.keras")
    for name, kind in (("ours", "keras_vit>VisionTransformer"), ("theirs", "Sequential")):
        message = refused(tmp_path / f"{name}.keras")
        assert f"this is a .keras file, a whole model of the class {kind}" in message
