"""The numbers of the libraries for the families beyond ViT, from the libraries' own files."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_vit import checkpoints
from keras_vit.errors import CheckpointError
from tests.family_goldens import (
    CASES,
    FOLDER,
    OF_THE_HEAD,
    cases_of,
    expected,
    load_case,
    outputs,
    relative_error,
)

TRANSFORMERS = cases_of("transformers")


def _sizes(want):
    """Every size of the images of a case, as the suffix of the names of its outputs."""
    return [name.removeprefix("image") for name in want if name in ("image",) or "image_" in name]


@pytest.mark.parametrize("name", CASES)
def test_every_stage_equals_the_library(name):
    """Each stage is within the case's tolerance of the library's largest value, at every size."""
    case, want = CASES[name], expected(name)
    errors = {}
    for suffix in (s for s in _sizes(want) if s != "_embeds"):
        image = want[f"image{suffix}"]
        model = load_case(name, image_size=image.shape[1:3])
        stages = [n.removesuffix(suffix) for n in want if n.endswith(suffix) and "image" not in n]
        stages = [stage for stage in stages if suffix or "x" not in stage.rpartition("_")[2]]
        stages += ["image_embeds"] if "image_embeds" in want and not suffix else []
        for stage, value in outputs(model, image, stages).items():
            errors[stage + suffix] = relative_error(value, want[stage + suffix])
    assert set(errors) & {"logits", "pre_logits", "image_embeds"}
    limits = {
        s: case["tolerance" if s.startswith(OF_THE_HEAD) else "tolerance_tokens"] for s in errors
    }
    assert {s: e for s, e in errors.items() if not e <= limits[s]} == {}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_files_come_back_as_they_were(name, tmp_path):
    """From the library's file to the library's file: the same names and bits.

    A class with a text tower cannot be written without one; of the others, arrays that the class
    does not read are left out.
    """
    case = CASES[name]
    source = FOLDER / case["checkpoint"]
    dialect = checkpoints.inspect(source).dialect
    if case["model_class"] in ("CLIPModel", "SiglipModel"):
        with pytest.raises(CheckpointError, match="text tower"):
            checkpoints.convert(source, tmp_path / "x", dialect)
        return
    checkpoints.convert(source, tmp_path / "x", dialect)
    theirs = load_file(source / "model.safetensors")
    ours = load_file(tmp_path / "x" / "model.safetensors")
    short = {n.removeprefix("vision_model.").removeprefix("vit."): n for n in ours}
    unused = set(case["unused_arrays"] or ()) | {"embeddings.position_ids"}
    theirs = {n: array for n, array in theirs.items() if not n.startswith("decoder.")}
    for found, array in theirs.items():
        known = found.removeprefix("vision_model.").removeprefix("vit.")
        if known in short:
            np.testing.assert_array_equal(ours[short.pop(known)], array)
        else:
            assert found in unused or known in unused
    assert not short


def test_the_features_of_two_heads_are_the_mean_of_their_tokens():
    """Without heads, DeiT returns the mean of class and distillation token (timm's pre_logits)."""
    want = expected("hf_deit_teacher")
    got = load_case("hf_deit_teacher", num_classes=0).predict(want["image"], verbose=0)
    assert relative_error(got, want["pre_logits"]) <= CASES["hf_deit_teacher"]["tolerance"]


_ONE_TOWER = [
    n for n in TRANSFORMERS if CASES[n]["model_class"] not in ("CLIPModel", "SiglipModel")
]


@pytest.mark.parametrize("name", _ONE_TOWER)
def test_transformers_computes_the_same_from_our_file(name, tmp_path):
    """A model that is loaded, saved and opened by transformers gives the library's outputs."""
    torch = pytest.importorskip("torch")
    from tests import torchvision_shim  # noqa: F401

    transformers = pytest.importorskip("transformers")
    case, want = CASES[name], expected(name)
    model = load_case(name)
    checkpoints.save(
        model, tmp_path / "x", checkpoints.inspect(FOLDER / case["checkpoint"]).dialect
    )
    written = json.loads((tmp_path / "x" / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, written).from_pretrained(tmp_path / "x").eval()
    pixels = torch.from_numpy(want["image"].transpose(0, 3, 1, 2).copy())
    more = {"noise": torch.arange(16.0)[None].repeat(len(pixels), 1)} if "MAE" in written else {}
    with torch.no_grad():
        found = theirs(pixels, **more)
    for key, stage in (("logits", "logits"), ("image_embeds", "image_embeds")):
        if stage in want:
            assert relative_error(found[key].numpy(), want[stage]) <= case["tolerance"]
            return
    tokens = found["last_hidden_state"].numpy()
    stage = "last_hidden_state" if "last_hidden_state" in want else "encoded"
    assert relative_error(tokens, want[stage]) <= case["tolerance_tokens"]
