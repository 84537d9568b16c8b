"""Families beyond ViT give the outputs of their libraries from the files of these libraries."""

import pytest

import keras_vit
from tests.family_goldens import (
    CASES,
    FOLDER,
    OF_THE_HEAD,
    expected,
    load_case,
    outputs,
    relative_error,
)
from tests.thorough import sample

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


def test_a_distilled_model_without_heads_returns_the_mean_of_two_tokens():
    """The mean of class and distillation token is timm's pre_logits of DeiT."""
    want = expected("hf_deit_teacher")
    got = load_case("hf_deit_teacher", num_classes=0).predict(want["image"], verbose=0)
    assert relative_error(got, want["pre_logits"]) <= CASES["hf_deit_teacher"]["tolerance"]


@pytest.mark.without_backend
@pytest.mark.parametrize("name", ["hf_dinov3_model", "timm_dinov3"])
def test_a_field_of_the_rotary_positions_leaves_the_others_to_the_file(name):
    stated = keras_vit.info(FOLDER / name).config
    changed = keras_vit.info(FOLDER / name, rope={"theta": 50.0}).config
    assert changed == stated.replace(rope={"theta": 50.0})
