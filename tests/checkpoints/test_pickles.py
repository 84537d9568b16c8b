"""torch's pickles of arrays are read for callers who allow them, and run nothing."""

import argparse
import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.cli import main
from tests.checkpoints.files import arrays_of, refused
from tests.helpers import random_tiny, to_numpy
from tests.plain import normal, stored

IMAGES = normal(2, 16, 16, 3)
ALLOWED = {"allow_pickle_weights": True}


@pytest.fixture(scope="module")
def model():
    return random_tiny()


@pytest.fixture
def folder(model, tmp_path):
    """A folder as transformers 4 wrote it, with a pickle and no safetensors."""
    checkpoints.save(model, tmp_path, "transformers")
    arrays = stored(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save({n: torch.tensor(a) for n, a in arrays.items()}, tmp_path / "pytorch_model.bin")
    return tmp_path


def check(model, folder, **how):
    """The folder's model has the outputs of `model`."""
    again = VisionTransformer.from_preset(folder, **how)
    np.testing.assert_allclose(to_numpy(again(IMAGES)), to_numpy(model(IMAGES)), atol=1e-6)


def test_a_pickle_is_read_if_the_caller_allows_it(model, folder):
    """Options that the program allows to unpickle stay allowed."""
    refused(folder, "pytorch_model.bin", "'allow_pickle_weights': True", "safe_serialization=True")
    check(model, folder, read=ALLOWED)
    with torch.serialization.safe_globals([argparse.Namespace]):
        assert keras_vit.info(folder, read=ALLOWED).family == "transformers"
        assert argparse.Namespace in torch.serialization.get_safe_globals()


def test_shards_with_an_index_are_one_pickle(model, folder):
    """As transformers 4 wrote a model of more than 10 GB."""
    arrays = torch.load(folder / "pytorch_model.bin", weights_only=True)
    (folder / "pytorch_model.bin").unlink()
    names = {name: f"part_{k % 2}.bin" for k, name in enumerate(arrays)}
    for part in set(names.values()):
        torch.save({n: array for n, array in arrays.items() if names[n] == part}, folder / part)
    index = json.dumps({"weight_map": names})
    (folder / "pytorch_model.bin.index.json").write_text(index)
    check(model, folder, read=ALLOWED)
    refused(folder, "'allow_pickle_weights': True")


def test_permission_for_pickles_leaves_safetensors_what_they_are(tmp_path):
    """The header's length is their first byte; one of 32 files begins as a pickle does."""
    arrays, path = arrays_of("timm_token"), tmp_path / "x"
    lengths = iter(range(300))
    while not path.exists() or path.read_bytes()[:1] != b"\x80":
        save_file(arrays, path, metadata={"note": "x" * next(lengths)})
    assert keras_vit.info(path, num_heads=3, read=ALLOWED).family == "timm"


@pytest.mark.parametrize("form", ["nested", "in itself", "before torch 1.6", "bfloat16"])
def test_every_form_of_a_pickle_is_read(form, model, folder):
    """Below `state_dict`, in the format that cannot be mapped into memory, and in 16 bits."""
    path = folder / "pytorch_model.bin"
    arrays = torch.load(path, weights_only=True)
    if form == "bfloat16":
        arrays = {name: array.bfloat16() for name, array in arrays.items()}
    content = {"state_dict": arrays, "epoch": 3} if form in ("nested", "in itself") else arrays
    if form == "in itself":
        content["itself"] = content
    torch.save(content, path, _use_new_zipfile_serialization=form != "before torch 1.6")
    if form != "bfloat16":
        check(model, folder, read=ALLOWED)
    again = VisionTransformer.from_preset(folder, read=ALLOWED)
    found = again.get_layer("head").kernel.value.detach().T
    torch.testing.assert_close(found, arrays["classifier.weight"].float(), atol=0, rtol=0)


class Hostile:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (eval, (f"open({str(self.path)!r}, 'w').close()",))


def saves(make, **form):
    """Saves something else in the place of an array."""
    name = "classifier.weight"
    return lambda path: torch.save(
        torch.load(path, weights_only=True) | {name: make(path)}, path, **form
    )


def pickles(make):
    """Saves a plain pickle."""
    return lambda path: path.write_bytes(pickle.dumps(make(path)))


ONES, LAYER = torch.ones(5, 16), torch.nn.Linear(2, 2)
OLD = {"_use_new_zipfile_serialization": False}
UNREADABLE = {
    "hostile": (saves(lambda path: Hostile(path.with_name("trace"))),),
    "hostile pickle": (pickles(lambda path: {"a": Hostile(path.with_name("trace"))}),),
    "damaged": (lambda path: path.write_bytes(path.read_bytes()[:500]), "complete"),
    "sparse": (saves(lambda path: ONES.to_sparse()), "classifier.weight is torch."),
    "meta": (saves(lambda path: ONES.to("meta")), "classifier.weight is torch."),
    "float8": (saves(lambda path: ONES.to(torch.float8_e4m3fn)), "classifier.weight is torch."),
    "a class": (saves(lambda path: LAYER), "torch.nn.modules.linear.Linear"),
    "an old class": (saves(lambda path: LAYER, **OLD), "modules.linear.Linear"),
    "a program": (lambda path: torch.jit.script(LAYER).save(str(path)), "TorchScript"),
    "plain pickle": (pickles(lambda path: {"w": 1}), "torch.save"),
}


@pytest.mark.parametrize("fault", UNREADABLE)
@pytest.mark.filterwarnings("ignore")
def test_a_pickle_of_anything_but_arrays_is_refused(fault, folder):
    """Nothing runs, and a complete file is not called incomplete."""
    write, *words = UNREADABLE[fault]
    write(folder / "pytorch_model.bin")
    for ask in (keras_vit.info, VisionTransformer.from_preset):
        message = refused(folder, "pytorch_model.bin", *words, ask=ask, read=ALLOWED)
        assert ("complete" in message) == (fault == "damaged")
    assert not (folder / "trace").exists()


def test_the_command_line_turns_a_pickle_into_safetensors(model, folder, tmp_path, capsys):
    out = tmp_path / "converted"
    command = ["convert", str(folder), str(out), "--family", "transformers"]
    assert main(command) == 2
    assert "--allow-pickle-weights" in capsys.readouterr().err
    assert main([*command, "--allow-pickle-weights"]) == 0
    assert json.loads((out / "config.json").read_text())["model_type"] == "vit"
    check(model, out)
