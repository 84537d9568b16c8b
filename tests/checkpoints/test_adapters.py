"""Adapters of PEFT give the outputs of its `merge_and_unload`; others are refused by their part."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.plain_names import name_in_file, plain_name
from keras_vit.config.weights import templates
from keras_vit.errors import CheckpointError
from tests.golden import relative_error
from tests.helpers import to_numpy
from tests.words import raises

FOLDER = Path(__file__).parents[1] / "data" / "adapters"
BASES = {"classifier": "vit_bare", "options": "vit", "unmerged": None}


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDER / "expected.npz") as file:
        return dict(file)


def check(model, expected, name):
    assert relative_error(to_numpy(model(expected["images"])), expected[name]) <= 2e-6


def copied(tmp_path, name, **changes):
    """Copies an adapter's folder with other values in its configuration."""
    folder = shutil.copytree(FOLDER / name, tmp_path / name)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


@pytest.mark.parametrize("name", BASES)
def test_an_adapter_gives_the_logits_of_the_merged_model(name, expected):
    """Ranks and scales by module, the root of the rank, biases, convolutions, whole modules."""
    base = BASES[name] and FOLDER / BASES[name]
    given = {"num_heads": 2} if base is None else {}
    check(checkpoints.load(FOLDER / name, base=base, **given), expected, name)


@pytest.mark.without_backend
def test_an_adapter_finds_its_base_in_a_local_folder(tmp_path):
    folder = copied(tmp_path, "options", base_model_name_or_path=str(FOLDER / "vit"))
    info = keras_vit.info(folder)
    assert (info.family, info.config.num_classes) == ("transformers", 3)
    keras_vit.convert(folder, tmp_path / "merged", "transformers")
    assert keras_vit.info(tmp_path / "merged").config == info.config


@pytest.mark.without_backend
def test_the_file_of_an_adapter_is_read_with_the_json_beside_it():
    file = FOLDER / "options" / "adapter_model.safetensors"
    assert keras_vit.info(file, base=FOLDER / "vit").config.num_heads == 2


@pytest.mark.without_backend
def test_the_base_of_a_hub_adapter_is_no_local_folder(tmp_path):
    """Only the address of a repository is taken; the folder's own name is refused."""
    from keras_vit.checkpoints.opening import _find_base
    from keras_vit.presets.place import Location
    from keras_vit.presets.source import Source

    source = Source("hf://someone/adapter", Location)
    with raises(CheckpointError, "neither a folder here nor a repository of the Hub", "base="):
        _find_base(source, tmp_path, {"base_model_name_or_path": str(FOLDER / "vit")})


@pytest.mark.on_one_backend("torch", "jax")
def test_fan_in_fan_out_is_set_aside_as_peft_does_for_linear_layers(tmp_path, expected):
    """No layer of a Vision Transformer is a Conv1D, which alone stores its kernel transposed."""
    folder = copied(tmp_path, "options", fan_in_fan_out=True)
    check(checkpoints.load(folder, base=FOLDER / "vit"), expected, "options")


@pytest.mark.without_backend
def test_a_kernel_that_is_stored_transposed_is_no_base(tmp_path):
    """As a Conv1D stores it; the product has as many numbers, in another order."""
    base = shutil.copytree(FOLDER / "vit", tmp_path / "vit")
    arrays = load_file(base / "model.safetensors")
    name = "vit.encoder.layer.0.intermediate.dense.weight"
    save_file({**arrays, name: np.ascontiguousarray(arrays[name].T)}, base / "model.safetensors")
    with raises(CheckpointError, "intermediate", "fits no array of the base", "(16, 24)", "base="):
        keras_vit.info(FOLDER / "options", base=base)


@pytest.mark.without_backend
def test_a_base_that_cannot_be_read_is_replaced_by_an_argument(tmp_path, monkeypatch):
    """A folder without weights, or a repository that is not in the cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "empty").mkdir()
    for number, name in enumerate((str(tmp_path / "empty"), "nobody/no-model")):
        place = tmp_path / str(number)
        place.mkdir()
        folder = copied(place, "options", base_model_name_or_path=name)
        with raises(CheckpointError, "base of this adapter", "Give base=", name.split("/")[-1]):
            keras_vit.info(folder)
        assert keras_vit.info(folder, base=FOLDER / "vit").config.num_classes == 3


@pytest.mark.on_one_backend("torch")
def test_names_of_transformers_4_are_those_of_the_files(tmp_path, expected):
    folder = copied(tmp_path, "classifier", alpha_pattern={"0.attention.attention.value": 5})
    path = folder / "adapter_model.safetensors"
    save_file({name_in_file(name): array for name, array in load_file(path).items()}, path)
    assert any("encoder.layer.0.attention.attention.query" in name for name in load_file(path))
    check(checkpoints.load(folder, base=FOLDER / "vit_bare"), expected, "classifier")


@pytest.mark.on_one_backend("torch")
def test_a_pickle_of_an_adapter_needs_the_callers_permission(tmp_path, expected):
    import torch

    folder = copied(tmp_path, "options")
    path = folder / "adapter_model.safetensors"
    arrays = {name: torch.tensor(array) for name, array in load_file(path).items()}
    torch.save(arrays, folder / "adapter_model.bin")
    torch.save({"state": {}}, folder / "optimizer.pt")
    path.unlink()
    with pytest.raises(CheckpointError, match="allow_pickle_weights"):
        checkpoints.load(folder, base=FOLDER / "vit")
    model = checkpoints.load(folder, base=FOLDER / "vit", allow_pickle_weights=True)
    check(model, expected, "options")


@pytest.mark.without_backend
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peft_type": "IA3"}, "its peft_type is 'IA3'"),
        ({"use_dora": True}, "use_dora=True"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa' has changed the base"),
        ({"target_parameters": ["a"]}, "target_parameters=['a']"),
        ({"alpha_pattern": {"(a+)+b": 4}}, "the regular expression '(a+)+b'"),
    ],
)
def test_other_methods_are_refused_with_merge_and_unload(tmp_path, changes, words):
    folder = copied(tmp_path, "options", **changes)
    with raises(CheckpointError, words, "merge_and_unload"):
        keras_vit.info(folder, base=FOLDER / "vit")


@pytest.mark.without_backend
def test_arrays_that_are_no_factors_are_refused(tmp_path):
    folder = copied(tmp_path, "options")
    path, arrays = folder / "adapter_model.safetensors", {}
    for name, array in load_file(path).items():
        arrays[name.replace("lora_A", "lora_magnitude_vector")] = array
    save_file(arrays, path)
    with raises(CheckpointError, "lora_magnitude_vector", "merge_and_unload"):
        keras_vit.info(folder, base=FOLDER / "vit")


@pytest.mark.without_backend
def test_an_adapter_without_its_base_or_scale_says_what_to_give(tmp_path):
    """The file alone has no scale; another base lacks the arrays, or has them in other sizes."""
    with raises(CheckpointError, "an adapter without its base", "base="):
        keras_vit.info(FOLDER / "classifier")
    unmerged = shutil.copy(FOLDER / "unmerged" / "model.safetensors", tmp_path / "x.safetensors")
    with raises(CheckpointError, "lora_alpha", "adapter_config.json"):
        keras_vit.info(unmerged, num_heads=2)
    with raises(CheckpointError, "does not have", "base="):
        keras_vit.info(FOLDER / "options", base="vit_digits")
    arrays = load_file(FOLDER / "vit" / "model.safetensors")
    arrays["vit.encoder.layer.0.intermediate.dense.weight"] = np.zeros((3, 16), "float32")
    base = shutil.copytree(FOLDER / "vit", tmp_path / "vit")
    save_file(arrays, base / "model.safetensors")
    with raises(CheckpointError, "fits no array of the base", "base="):
        keras_vit.info(FOLDER / "options", base=base)
    with raises(CheckpointError, "base= is for adapters"):
        keras_vit.info(FOLDER / "vit", base=FOLDER / "vit_bare")


@pytest.mark.without_backend
def test_the_names_of_every_dialect_are_plain_already():
    """Rules for names in a training change no name of a file."""
    for dialect in DIALECTS.values():
        for names in dialect.words.values():
            for stored in names:
                for name in templates.examples(stored.name):
                    assert all(plain_name(p + name) == p + name for p in dialect.prefixes)


@pytest.mark.on_one_backend("torch")
def test_verify_compares_an_adapter_with_the_merged_checkpoint(tmp_path):
    """The library alone would read the base without the adapter."""
    folder, base = FOLDER / "options", FOLDER / "vit"
    keras_vit.convert(folder, tmp_path / "merged", "transformers", base=base)
    assert keras_vit.verify(folder, tmp_path / "merged", base=base).passed
    with raises(CheckpointError, "without PEFT's adapter"):
        keras_vit.verify(folder, base=base)
