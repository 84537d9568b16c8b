"""Damaged or contradictory folders of other libraries are refused by one precise error."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit import CheckpointError, checkpoints
from tests.checkpoints.shards import INDEX, split
from tests.golden import FOLDER
from tests.helpers import random_tiny


@pytest.fixture
def folder(tmp_path):
    """A copy of a transformers checkpoint, which the tests damage."""
    return shutil.copytree(FOLDER / "hf_classifier", tmp_path / "copy")


def refused(folder, **fields) -> str:
    """Loads and converts the folder; returns the message, which must be the same for both."""
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load(folder, **fields)
    with pytest.raises(CheckpointError) as again:
        checkpoints.convert(folder, folder.parent / "out", "transformers", **fields)
    assert str(again.value) == str(caught.value)
    assert not (folder.parent / "out").exists()
    return str(caught.value)


def test_an_array_of_integers_is_refused(folder):
    """The message names the array, the type found and the type expected."""
    arrays = load_file(folder / "model.safetensors")
    arrays["classifier.bias"] = arrays["classifier.bias"].astype("int32")
    save_file(arrays, folder / "model.safetensors")
    assert "classifier.bias is int32, expected a float" in refused(folder)


def test_a_folder_with_several_files_of_weights_is_refused(tmp_path):
    """The message names the files."""
    for name in ("a.npz", "b.npz"):
        shutil.copy(FOLDER / "vit_rep.npz", tmp_path / name)
    with pytest.raises(CheckpointError, match="expected one file of weights .* found a.npz, b.npz"):
        checkpoints.load(tmp_path)


def test_sharded_safetensors_load_and_bad_indices_are_refused(folder):
    """A missing shard, a long name, and an array in two shards."""
    weight_map, index = split(folder), folder / INDEX
    whole = checkpoints.load(FOLDER / "hf_classifier")
    images = np.random.default_rng(0).uniform(-1, 1, (1, 16, 16, 3)).astype("float32")
    got = checkpoints.load(folder).predict(images, verbose=0)
    np.testing.assert_array_equal(got, whole.predict(images, verbose=0))

    shutil.copy(folder / "model-00001-of-00002.safetensors", folder / "extra.safetensors")
    assert weight_map["classifier.bias"].startswith("model-00001")
    double = {**weight_map, "classifier.bias": "extra.safetensors"}
    index.write_text(json.dumps({"weight_map": double}))
    assert "stands in two files" in refused(folder)
    index.write_text(json.dumps({"weight_map": {**weight_map, "classifier.bias": "x" * 5000}}))
    assert len(refused(folder)) < 2000
    index.write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert "names 'model-00001-of-00002.safetensors', but the folder has no such file" in refused(
        folder
    )


def test_a_folder_with_other_files_is_not_overwritten(tmp_path):
    """A folder with an older checkpoint is."""
    model = random_tiny(numerics={"gelu": "exact", "layer_norm_epsilon": 1e-12})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(CheckpointError, match="holds notes.txt, so it is not overwritten"):
        checkpoints.save(model, tmp_path / "out", "transformers")
    (tmp_path / "out" / "notes.txt").unlink()
    checkpoints.save(model, tmp_path / "out", "transformers")
    checkpoints.save(model, tmp_path / "out", "transformers")
    assert checkpoints.load(tmp_path / "out").config.hidden_size == model.config.hidden_size
