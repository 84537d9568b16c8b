"""torch's pickles of arrays are read for callers who allow them, and run nothing."""

import json
import pickle

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.cli import main
from keras_vit.errors import CheckpointError
from tests.golden import FOLDER
from tests.helpers import normal, random_tiny, to_numpy

# torch reads the files on every backend.
pytestmark = pytest.mark.on_one_backend("torch")
IMAGES = normal(2, 16, 16, 3)


@pytest.fixture
def folder(tmp_path):
    """A folder as transformers 4 wrote it, with a pickle and no safetensors."""
    import torch
    from safetensors.torch import load_file

    model = random_tiny()
    checkpoints.save(model, tmp_path, "transformers")
    arrays = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save(arrays, tmp_path / "pytorch_model.bin")
    np.save(tmp_path / "expected.npy", to_numpy(model(IMAGES)))
    return tmp_path


def check(model, folder):
    expected = np.load(folder / "expected.npy")
    np.testing.assert_allclose(to_numpy(model(IMAGES)), expected, atol=1e-6)


def test_a_pickle_is_read_if_the_caller_allows_it(folder):
    words = r"found pytorch_model\.bin.*'allow_pickle_weights': True.*safe_serialization=True"
    with pytest.raises(CheckpointError, match=words):
        VisionTransformer.from_preset(folder)
    check(VisionTransformer.from_preset(folder, read={"allow_pickle_weights": True}), folder)
    info = keras_vit.info(folder, read={"allow_pickle_weights": True})
    assert info.family == "transformers"


def test_shards_with_an_index_are_one_pickle(folder):
    """As transformers 4 wrote a model of more than 10 GB."""
    import torch

    arrays = torch.load(folder / "pytorch_model.bin", weights_only=True)
    (folder / "pytorch_model.bin").unlink()
    names = {name: f"part_{k % 2}.bin" for k, name in enumerate(arrays)}
    for part in set(names.values()):
        torch.save({n: array for n, array in arrays.items() if names[n] == part}, folder / part)
    index = json.dumps({"weight_map": names})
    (folder / "pytorch_model.bin.index.json").write_text(index)
    check(VisionTransformer.from_preset(folder, read={"allow_pickle_weights": True}), folder)
    with pytest.raises(CheckpointError, match="'allow_pickle_weights': True"):
        VisionTransformer.from_preset(folder)


def test_permission_for_pickles_leaves_safetensors_what_they_are(tmp_path):
    """The header's length is their first byte; one of 32 files begins as a pickle does."""
    from safetensors.numpy import load_file, save_file

    arrays, path = load_file(FOLDER / "timm_token" / "model.safetensors"), tmp_path / "x"
    lengths = iter(range(300))
    while not path.exists() or path.read_bytes()[:1] != b"\x80":
        save_file(arrays, path, metadata={"note": "x" * next(lengths)})
    assert keras_vit.info(path, num_heads=3, read={"allow_pickle_weights": True}).family == "timm"


@pytest.mark.parametrize("form", ["nested", "before torch 1.6", "bfloat16"])
def test_every_form_of_a_pickle_is_read(folder, form):
    """Below `state_dict`, in the format that cannot be mapped into memory, and in 16 bits."""
    import torch

    path = folder / "pytorch_model.bin"
    arrays = torch.load(path, weights_only=True)
    if form == "nested":
        torch.save({"state_dict": arrays, "epoch": 3}, path)
    elif form == "bfloat16":
        torch.save({name: array.bfloat16() for name, array in arrays.items()}, path)
    else:
        torch.save(arrays, path, _use_new_zipfile_serialization=False)
    model = VisionTransformer.from_preset(folder, read={"allow_pickle_weights": True})
    if form != "bfloat16":
        check(model, folder)
    kernel = next(array for name, array in arrays.items() if name.endswith("classifier.weight"))
    found = model.get_layer("head").kernel.value.detach().T
    torch.testing.assert_close(found, kernel, atol=0, rtol=0 if form != "bfloat16" else 1e-2)


class Hostile:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (eval, (f"open({str(self.path)!r}, 'w').close()",))


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_pickle_that_would_run_code_is_refused(folder, is_zip, tmp_path):
    import torch

    trace, path = tmp_path / "trace", folder / "pytorch_model.bin"
    if is_zip:
        torch.save({"a": torch.zeros(2), "b": Hostile(trace)}, path)
    else:
        path.write_bytes(pickle.dumps({"a": Hostile(trace)}))
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        VisionTransformer.from_preset(folder, read={"allow_pickle_weights": True})
    assert not trace.exists()


def test_a_damaged_pickle_is_named(folder):
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        keras_vit.info(folder, read={"allow_pickle_weights": True})


def test_the_command_line_turns_a_pickle_into_safetensors(folder, tmp_path, capsys):
    out = tmp_path / "converted"
    command = ["convert", str(folder), str(out), "--family", "transformers"]
    assert main(command) == 2
    assert "--allow-pickle-weights" in capsys.readouterr().err
    assert main([*command, "--allow-pickle-weights"]) == 0
    assert json.loads((out / "config.json").read_text())["model_type"] == "vit"
    check(VisionTransformer.from_preset(out), folder)


@pytest.mark.parametrize("kind", ["sparse", "meta", "float8"])
def test_an_array_that_holds_no_weights_is_refused(kind, folder):
    import torch

    odd = {
        "sparse": lambda array: array.to_sparse(),
        "meta": lambda array: array.to("meta"),
        "float8": lambda array: array.to(torch.float8_e4m3fn),
    }
    path = folder / "pytorch_model.bin"
    arrays = torch.load(path, weights_only=True)
    arrays["classifier.weight"] = odd[kind](arrays["classifier.weight"])
    torch.save(arrays, path)
    with pytest.raises(CheckpointError, match=r"compute with: classifier.weight is torch\.\w+ of "):
        keras_vit.info(folder, read={"allow_pickle_weights": True})


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_class_that_torch_refuses_is_named(is_zip, folder):
    """A complete file is not called incomplete."""
    import torch

    content = {"model": {"w": torch.zeros(2)}, "layer": torch.nn.Linear(2, 2)}
    path = folder / "pytorch_model.bin"
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(CheckpointError) as caught:
        keras_vit.info(folder, read={"allow_pickle_weights": True})
    assert "torch.nn.modules.linear.Linear" in str(caught.value)
    assert "complete" not in str(caught.value)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda torch, x, path: torch.jit.save(torch.jit.script(x), path), "a TorchScript program"),
        (
            lambda torch, x, path: path.write_bytes(pickle.dumps({"w": 1})),
            "torch.save did not write",
        ),
    ],
    ids=["TorchScript", "plain pickle"],
)
@pytest.mark.filterwarnings("ignore")
def test_other_files_of_these_names_are_called_what_they_are(write, words, tmp_path):
    """They are complete, and to fetch them again would not help."""
    import torch

    path = tmp_path / "x.pt"
    write(torch, torch.nn.Linear(2, 2), path)
    with pytest.raises(CheckpointError, match=words):
        keras_vit.info(path, read={"allow_pickle_weights": True})


def test_options_that_the_program_allows_stay_allowed(folder):
    import argparse

    import torch

    with torch.serialization.safe_globals([argparse.Namespace]):
        keras_vit.info(folder, read={"allow_pickle_weights": True})
        assert argparse.Namespace in torch.serialization.get_safe_globals()


def test_dicts_that_hold_themselves_are_read_once(folder):
    import torch

    path = folder / "pytorch_model.bin"
    content = {"state_dict": torch.load(path, weights_only=True)}
    content["itself"] = content
    torch.save(content, path)
    info = keras_vit.info(folder, read={"allow_pickle_weights": True})
    assert info.prefix.startswith("state_dict.")
