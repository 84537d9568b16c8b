"""Files of timm and transformers come back bit for bit, and both compute the same from ours."""

import filecmp
import json

import pytest

import keras_vit
from keras_vit import checkpoints
from tests import family_goldens, golden
from tests.golden import relative_error
from tests.helpers import only_under, stored

# The goldens are compared on every backend; here files are.
only_under("torch")
from tests.live import channels_first, timm, torch, transformers  # noqa: E402

pytestmark = pytest.mark.usefixtures("offline")

ONLY_READ = ("CLIPModel", "SiglipModel", "Siglip2VisionModel")
CASES = {
    **{name: golden for name, case in golden.CASES.items() if case["checkpoint"] == f"{name}/"},
    **{
        name: family_goldens
        for name, case in family_goldens.CASES.items()
        if case.get("model_class") not in ONLY_READ
    },
}
"""Names of cases, and the module that reads their goldens."""


def list_cases(library):
    """The names of the library's cases; timm has no architecture with the stem of one of them."""
    key = {golden: "family", family_goldens: "layout"}
    names = [name for name in CASES if name != "timm_r26"]
    return [name for name in names if CASES[name].CASES[name][key[CASES[name]]] == library]


def written(name, folder):
    """A file of the library as keras_vit writes it; the one of `save` and of `convert` are one."""
    goldens = CASES[name]
    source = goldens.FOLDER / goldens.CASES[name]["checkpoint"]
    dialect = keras_vit.info(source).family
    checkpoints.save(goldens.load_case(name), folder / "saved", dialect)
    keras_vit.convert(source, folder / "converted", dialect)
    file = "model.safetensors"
    assert filecmp.cmp(folder / "saved" / file, folder / "converted" / file, shallow=False)
    return source, folder / "saved", goldens.expected(name)


@pytest.mark.parametrize("name", list_cases("timm"))
def test_timm_computes_the_same_from_the_same_bits(name, tmp_path):
    source, folder, want = written(name, tmp_path)
    file = "model.safetensors"
    assert filecmp.cmp(source / file, folder / file, shallow=False)
    theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    with torch.no_grad():
        pixels = channels_first(want["image"])
        pooled = theirs.forward_head(theirs.forward_features(pixels), pre_logits=True)
        got = {"logits": theirs(pixels).numpy(), "pre_logits": pooled.numpy()}
    assert got.keys() & want.keys()
    # The goldens are of a processor with AVX-512; others sum a hybrid's convolutions otherwise.
    tolerance = 1e-5 if name.startswith("timm_r") else 1e-6
    for stage in got.keys() & want.keys():
        assert relative_error(got[stage], want[stage]) <= tolerance


def short(name):
    """A name without the prefix of a class."""
    return name.removeprefix("vision_model.").removeprefix("vit.")


@pytest.mark.parametrize("name", list_cases("transformers"))
def test_transformers_computes_the_same_from_the_same_bits(name, tmp_path):
    """Arrays that the class does not read are left out, or have other values."""
    source, folder, want = written(name, tmp_path)
    case = CASES[name].CASES[name]
    back = {short(n): array for n, array in stored(folder / "model.safetensors").items()}
    unused = set(case.get("unused_arrays") or ()) | {"embeddings.position_ids"}
    for found, array in stored(source / "model.safetensors").items():
        if found in unused or short(found) in unused or found.startswith("decoder."):
            back.pop(short(found), None)
        else:
            assert back.pop(short(found)).tobytes() == array.tobytes(), found
    assert not back
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, kind).from_pretrained(folder).eval()
    pixels = channels_first(want["image"])
    more = {"noise": torch.arange(16.0)[None].repeat(len(pixels), 1)} if "MAE" in kind else {}
    with torch.no_grad():
        found = theirs(pixels, **more)
    key = next((key for key in ("logits", "image_embeds") if key in want), "last_hidden_state")
    stage = key if key in want else "encoded"
    assert relative_error(found[key].numpy(), want[stage]) <= 1e-5
