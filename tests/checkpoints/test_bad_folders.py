"""Damaged or contradictory folders of other libraries are refused by one precise error."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit import CheckpointError, checkpoints
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


def edit(folder, **changes):
    """Changes fields of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


@pytest.mark.parametrize("kept", [4, 100, 3000, 40_000])
def test_a_cut_safetensors_file_is_refused(folder, kept):
    """The message names the file."""
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    message = refused(folder)
    assert "not a complete safetensors file" in message or "neither an npz" in message
    assert str(path) in message


@pytest.mark.parametrize("position", [0, 7, 9, 200])
def test_a_safetensors_file_with_a_damaged_header_is_refused(folder, position):
    """The header does not parse, or states more or fewer bytes than the file has."""
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[position] ^= 0x81
    path.write_bytes(bytes(content))
    assert "model.safetensors" in refused(folder)


def test_an_array_of_integers_is_refused(folder):
    """The message names the array, the type found and the type expected."""
    arrays = load_file(folder / "model.safetensors")
    arrays["classifier.bias"] = arrays["classifier.bias"].astype("int32")
    save_file(arrays, folder / "model.safetensors")
    assert "classifier.bias is int32, expected a float" in refused(folder)


def test_a_renamed_array_is_named_as_missing_and_unexpected(folder):
    """With keras_vit's path of the weight and the shape in torch's axes."""
    arrays = load_file(folder / "model.safetensors")
    good = "vit.encoder.layer.1.attention.attention.query.weight"
    arrays["vit.encoder.layer.1.attention.attention.q.weight"] = arrays.pop(good)
    save_file(arrays, folder / "model.safetensors")
    message = refused(folder)
    assert f"missing: {good}, expected (24, 24) [num_heads * head_dim, hidden_size]" in message
    assert "for block_1/attention/query/kernel" in message
    assert "nearest unclaimed name: vit.encoder.layer.1.attention.attention.q.weight" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 48}, r"misshapen: vit.embeddings.cls_token is (1, 1, 24)"),
        ({"num_hidden_layers": 3}, "missing: vit.encoder.layer.2.layernorm_before.weight"),
        ({"num_hidden_layers": 1}, "unexpected: vit.encoder.layer.1.attention"),
        ({"intermediate_size": 41}, "vit.encoder.layer.0.intermediate.dense.bias is (40,)"),
        ({"image_size": 24}, "position_embeddings is (1, 17, 24), expected (1, 37, 24)"),
        ({"num_attention_heads": 5}, "hidden_size=24 is not divisible by num_heads=5"),
        ({"hidden_act": "relu"}, "hidden_act='relu', expected one of gelu"),
        ({"model_type": "swin"}, "model_type='swin', expected 'vit'"),
        ({"hidden_size": "24"}, "hidden_size must be a positive int, found '24'"),
        ({"layer_norm_eps": None}, "layer_norm_epsilon must be a number"),
    ],
)
def test_a_config_that_contradicts_the_arrays_is_refused(folder, changes, message):
    """The message names the array or the value of config.json."""
    assert message in refused(edit(folder, **changes))


def test_a_folder_with_only_a_pickle_is_refused(tmp_path):
    """The message says how to write a safetensors file."""
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02}.")
    with pytest.raises(CheckpointError, match="allow_pickle_weights=True.*Safer: write"):
        checkpoints.load(tmp_path)


def test_a_folder_with_several_files_of_weights_is_refused(tmp_path):
    """The message names the files."""
    for name in ("a.npz", "b.npz"):
        shutil.copy(FOLDER / "vit_rep.npz", tmp_path / name)
    with pytest.raises(CheckpointError, match="expected one file of weights .* found a.npz, b.npz"):
        checkpoints.load(tmp_path)


def shard(folder, files: dict[str, list[str]]):
    """Splits model.safetensors into shards with an index, as transformers does."""
    arrays = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    rest = set(arrays) - {name for names in files.values() for name in names}
    files = {**files, "model-00002-of-00002.safetensors": sorted(rest)}
    for file, names in files.items():
        save_file({name: arrays[name] for name in names}, folder / file)
    weight_map = {name: file for file, names in files.items() for name in names}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index, weight_map


def test_sharded_safetensors_load_and_bad_indices_are_refused(folder):
    """A missing shard, a path outside the folder, a long name, an array in two shards."""
    names = ["classifier.weight", "vit.layernorm.bias"]
    index, weight_map = shard(folder, {"model-00001-of-00002.safetensors": names})
    whole = checkpoints.load(FOLDER / "hf_classifier")
    images = np.random.default_rng(0).uniform(-1, 1, (1, 16, 16, 3)).astype("float32")
    got = checkpoints.load(folder).predict(images, verbose=0)
    np.testing.assert_array_equal(got, whole.predict(images, verbose=0))

    hostile = {**weight_map, "classifier.bias": "../evil.safetensors"}
    index.write_text(json.dumps({"weight_map": hostile}))
    assert "names '../evil.safetensors', but the folder has no such file" in refused(folder)
    index.write_text(json.dumps({"weight_map": weight_map}))
    shutil.copy(folder / "model-00001-of-00002.safetensors", folder / "extra.safetensors")
    double = {**weight_map, "classifier.weight": "extra.safetensors"}
    index.write_text(json.dumps({"weight_map": double}))
    assert "stands in two files" in refused(folder)
    index.write_text(json.dumps({"weight_map": weight_map}))
    index.write_text(json.dumps({"weight_map": {**weight_map, "classifier.bias": "x" * 5000}}))
    assert len(refused(folder)) < 2000
    index.write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert "names 'model-00001-of-00002.safetensors', but the folder has no such file" in refused(
        folder
    )


@pytest.mark.parametrize(
    ("names", "guess"),
    [
        (["layers.0.blocks.0.attn.relative_position_bias_table"], "a Swin Transformer"),
        (["text_model.embeddings.token_embedding.weight"], "a text model"),
        (["conv1.weight", "layer1.0.conv1.weight", "fc.weight"], "a ResNet"),
    ],
)
def test_a_file_of_another_architecture_is_refused_by_its_likely_kind(tmp_path, names, guess):
    """A Swin Transformer, a text model, and a ResNet."""
    save_file({name: np.zeros((2, 2), "float32") for name in names}, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match=f"no Vision Transformer .* It looks like {guess}"):
        checkpoints.load(tmp_path / "x.safetensors")


def test_a_bare_state_dict_needs_num_heads():
    """The arrays do not determine the number of heads, and it is not guessed."""
    path = FOLDER / "timm_token" / "model.safetensors"
    with pytest.raises(
        CheckpointError, match="num_heads cannot be inferred from the arrays; give it by name"
    ):
        checkpoints.load(path)
    assert checkpoints.load(path, num_heads=3, image_size=16).config.num_heads == 3


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
