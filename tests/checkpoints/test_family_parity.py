"""Families beyond ViT give the outputs of their libraries from the files of these libraries."""

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
from tests.thorough import sample

TRANSFORMERS = cases_of("transformers")
ONLY_READ = {
    "CLIPModel": "text tower",
    "SiglipModel": "text tower",
    "Siglip2VisionModel": "packed patches",
}
"""Classes that no file is written for, and the reason."""
NAMES = sample(
    CASES,
    *("hf_clip_two_towers", "hf_deit_teacher", "hf_dinov2_reg_classifier", "hf_dinov2_swiglu"),
    *("hf_dinov3_rect", "hf_mae_pretraining", "hf_siglip2_naflex", "kh_dinov3_gated_rect"),
    *("timm_aimv2", "timm_avg_no_norm_rect", "timm_beit3", "timm_eva02_base_rect"),
    *("timm_pe_core", "timm_pe_spatial_rect", "timm_radio", "timm_reg4_map"),
    *("timm_rope_ape_rect", "timm_rope_mixed", "timm_beit", "timm_beit_rect", "timm_beit_shared"),
    "hf_data2vec_model",
)
"""On JAX and TensorFlow: every switch of the families, in the richest form."""
WRITTEN = [name for name in TRANSFORMERS if CASES[name]["model_class"] not in ONLY_READ]


def _sizes(want):
    """The suffixes by which the outputs of a case name their image sizes."""
    return [name.removeprefix("image") for name in want if name in ("image",) or "image_" in name]


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_equals_the_library(name):
    """At every image size, within the case's tolerance relative to the largest value."""
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


@pytest.mark.without_backend
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_converting_a_file_to_its_own_dialect_keeps_names_and_bits(name, tmp_path):
    """From a file of the library to a file of the library.

    A class with a text tower is refused, because keras_vit writes the vision tower alone. Arrays
    that the class does not read are left out.
    """
    case = CASES[name]
    source = FOLDER / case["checkpoint"]
    dialect = checkpoints.inspect(source).dialect
    if case["model_class"] in ONLY_READ:
        with pytest.raises(CheckpointError, match=ONLY_READ[case["model_class"]]):
            checkpoints.convert(source, tmp_path / "x", dialect)
        return
    checkpoints.convert(source, tmp_path / "x", dialect)
    original = load_file(source / "model.safetensors")
    written = load_file(tmp_path / "x" / "model.safetensors")
    short = {n.removeprefix("vision_model.").removeprefix("vit."): n for n in written}
    unused = set(case["unused_arrays"] or ()) | {"embeddings.position_ids"}
    original = {n: array for n, array in original.items() if not n.startswith("decoder.")}
    for found, array in original.items():
        known = found.removeprefix("vision_model.").removeprefix("vit.")
        if known in short:
            np.testing.assert_array_equal(written[short.pop(known)], array)
        else:
            assert found in unused or known in unused
    assert not short


def test_a_distilled_model_without_heads_returns_the_mean_of_two_tokens():
    """The mean of class and distillation token is timm's pre_logits of DeiT."""
    want = expected("hf_deit_teacher")
    got = load_case("hf_deit_teacher", num_classes=0).predict(want["image"], verbose=0)
    assert relative_error(got, want["pre_logits"]) <= CASES["hf_deit_teacher"]["tolerance"]


@pytest.mark.on_one_backend("torch")
@pytest.mark.parametrize("name", WRITTEN)
def test_transformers_gives_the_same_outputs_from_a_file_of_keras_vit(name, tmp_path):
    """The checkpoint is loaded and saved by keras_vit, and opened by transformers."""
    torch = pytest.importorskip("torch")
    from tests import torchvision_shim  # noqa: F401

    transformers = pytest.importorskip("transformers")
    case, want = CASES[name], expected(name)
    model = load_case(name)
    checkpoints.save(
        model, tmp_path / "x", checkpoints.inspect(FOLDER / case["checkpoint"]).dialect
    )
    written = json.loads((tmp_path / "x" / "config.json").read_text())["architectures"][0]
    library_model = getattr(transformers, written).from_pretrained(tmp_path / "x").eval()
    pixels = torch.from_numpy(want["image"].transpose(0, 3, 1, 2).copy())
    more = {"noise": torch.arange(16.0)[None].repeat(len(pixels), 1)} if "MAE" in written else {}
    with torch.no_grad():
        found = library_model(pixels, **more)
    for key, stage in (("logits", "logits"), ("image_embeds", "image_embeds")):
        if stage in want:
            assert relative_error(found[key].numpy(), want[stage]) <= case["tolerance"]
            return
    tokens = found["last_hidden_state"].numpy()
    stage = "last_hidden_state" if "last_hidden_state" in want else "encoded"
    assert relative_error(tokens, want[stage]) <= case["tolerance_tokens"]
